// Loaded into a server: while the file ROWLOCK_FULL_DISK exists no file grows, as on a disk without
// a free block. Existing blocks can be overwritten.

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

bool is_full() {
    static const char* const flag = std::getenv("ROWLOCK_FULL_DISK");
    return flag != nullptr && access(flag, F_OK) == 0;
}

bool has_no_room(int file, off_t end) {
    const int before = errno;
    struct stat found {};
    const bool grows =
        is_full() && fstat(file, &found) == 0 && S_ISREG(found.st_mode) && end > found.st_size;
    errno = grows ? ENOSPC : before;
    return grows;
}

template <typename Function>
Function* next(const char* name, Function* /*like*/) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

off_t total(const iovec* parts, int count) {
    off_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += static_cast<off_t>(parts[i].iov_len);
    return bytes;
}

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the headers' are reserved
extern "C" {

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t at) {
    static auto* const real = next("pwrite64", &pwrite64);
    return has_no_room(file, at + static_cast<off_t>(count)) ? -1 : real(file, bytes, count, at);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
    return pwrite64(file, bytes, count, at);
}

ssize_t pwritev64(int file, const iovec* parts, int count, off64_t at) {
    static auto* const real = next("pwritev64", &pwritev64);
    return has_no_room(file, at + total(parts, count)) ? -1 : real(file, parts, count, at);
}

ssize_t pwritev(int file, const iovec* parts, int count, off_t at) {
    return pwritev64(file, parts, count, at);
}

int posix_fallocate64(int file, off64_t at, off64_t count) {
    static auto* const real = next("posix_fallocate64", &posix_fallocate64);
    return has_no_room(file, at + count) ? ENOSPC : real(file, at, count);
}

int posix_fallocate(int file, off_t at, off_t count) {
    return posix_fallocate64(file, at, count);
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
