#!/bin/sh
# offline.sh COMMAND...: runs COMMAND without any network. Fails where the system cannot take it away.
exec unshare --map-root-user --net "$@"
