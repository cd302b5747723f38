// Loaded into a MariaDB or MySQL: while the file ROWLOCK_LATE_LOG exists nothing is written to
// InnoDB's log. Others still see commits, which are lost if the server is killed.

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_held() {
    static const char* const flag = std::getenv("ROWLOCK_LATE_LOG");
    return flag != nullptr && access(flag, F_OK) == 0;
}

bool is_log(int file) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const auto length = readlink(link.c_str(), path.data(), path.size());
    if (length <= 0) return false;
    const std::string_view name{path.data(), static_cast<std::size_t>(length)};
    // MySQL has numbered files in a separate folder.
    return name.ends_with("/ib_logfile0") ||
           name.find("/#innodb_redo/#ib_redo") != std::string_view::npos;
}

void wait_for_leave(int file) {
    const int before = errno;
    while (is_held() && is_log(file)) usleep(1000);
    errno = before;
}

template <typename Function>
Function* next(const char* name, Function* /*like*/) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the headers' are reserved
extern "C" {

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t at) {
    static auto* const real = next("pwrite64", &pwrite64);
    wait_for_leave(file);
    return real(file, bytes, count, at);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
    return pwrite64(file, bytes, count, at);
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
