// Keeps _ops.so and _ops_cuda.so loadable wherever TensorFlow itself loads
// (tests/packaging/test_symbols.py).
//
// TensorFlow's wheels are built against an old C library (glibc 2.17 for 2.15, 2.27 for 2.21); a
// current Debian or Ubuntu compiler binds to the newest version of each symbol. The C++ runtime is
// linked statically, so only what that runtime asks of glibc is left. Each entry below was found
// in a build; the version script keeps these definitions inside _ops.so.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

#if defined(__GLIBC__) && defined(__x86_64__)

extern "C" {

// glibc 2.32: lets libstdc++ drop atomics while there is one thread. TensorFlow has many.
char __libc_single_threaded = 0;

// glibc 2.34 moved this from libpthread to libc under a new version; the old one is still there.
int OldPthreadOnce(pthread_once_t* once, void (*init)());
__asm__(".symver OldPthreadOnce, pthread_once@GLIBC_2.2.5");
int pthread_once(pthread_once_t* once, void (*init)()) { return OldPthreadOnce(once, init); }

// The same of std::mutex::try_lock.
int OldTryLock(pthread_mutex_t* mutex);
__asm__(".symver OldTryLock, pthread_mutex_trylock@GLIBC_2.2.5");
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept { return OldTryLock(mutex); }

// Of the thread of a table with a cold store.
int OldCreate(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*), void* argument);
__asm__(".symver OldCreate, pthread_create@GLIBC_2.2.5");
int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*),
                   void* argument) noexcept {
  return OldCreate(thread, attr, run, argument);
}
int OldJoin(pthread_t thread, void** result);
__asm__(".symver OldJoin, pthread_join@GLIBC_2.2.5");
int pthread_join(pthread_t thread, void** result) { return OldJoin(thread, result); }
// Of the thread that moves variables onto huge pages.
int OldDetach(pthread_t thread);
__asm__(".symver OldDetach, pthread_detach@GLIBC_2.2.5");
int pthread_detach(pthread_t thread) noexcept { return OldDetach(thread); }
// Of a table's locks.
int OldReadLock(pthread_rwlock_t* lock);
__asm__(".symver OldReadLock, pthread_rwlock_rdlock@GLIBC_2.2.5");
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept { return OldReadLock(lock); }
int OldWriteLock(pthread_rwlock_t* lock);
__asm__(".symver OldWriteLock, pthread_rwlock_wrlock@GLIBC_2.2.5");
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept { return OldWriteLock(lock); }
int OldUnlock(pthread_rwlock_t* lock);
__asm__(".symver OldUnlock, pthread_rwlock_unlock@GLIBC_2.2.5");
int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept { return OldUnlock(lock); }

// And from libdl, of CUDA's runtime and of core/storage.
void* OldOpen(const char* file, int mode);
__asm__(".symver OldOpen, dlopen@GLIBC_2.2.5");
void* dlopen(const char* file, int mode) noexcept { return OldOpen(file, mode); }
void* OldSymbol(void* library, const char* name);
__asm__(".symver OldSymbol, dlsym@GLIBC_2.2.5");
void* dlsym(void* library, const char* name) noexcept { return OldSymbol(library, name); }
char* OldError();
__asm__(".symver OldError, dlerror@GLIBC_2.2.5");
char* dlerror() noexcept { return OldError(); }
int OldAddress(const void* address, Dl_info* info);
__asm__(".symver OldAddress, dladdr@GLIBC_2.2.5");
int dladdr(const void* address, Dl_info* info) noexcept { return OldAddress(address, info); }
int OldClose(void* library);
__asm__(".symver OldClose, dlclose@GLIBC_2.2.5");
int dlclose(void* library) noexcept { return OldClose(library); }

// glibc 2.33: was an inline function before, which called this with the version of the struct.
int OldFstat(int version, int file, struct stat* info);
__asm__(".symver OldFstat, __fxstat@GLIBC_2.2.5");
int fstat(int file, struct stat* info) noexcept { return OldFstat(1, file, info); }

}  // extern "C"

#endif
