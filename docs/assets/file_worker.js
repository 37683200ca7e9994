// Lets the search work on pages that are opened from a folder: browsers start no Worker from file://.
// The worker's script runs in a hidden frame instead. Pages from a server keep the browser's Worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      this.waiting = [];
      scope.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const script = scope.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        this.scope = scope;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.dispatchEvent(new Event("error"));
      scope.document.body.append(script);
    }

    postMessage(data) {
      if (this.scope) this.scope.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
