#include "scaling/cpu_time.hpp"

#include <sys/resource.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

/// Calls `action` for each entry of a folder of /proc. Entries may vanish meanwhile.
template <typename Action>
void for_each_entry(const fs::path& folder, Action action) {
    std::error_code gone;
    for (fs::directory_iterator each{folder, gone}, end; each != end && !gone;
         each.increment(gone)) {
        action(each->path());
    }
}

/// Of the threads that run now; 0 if the process is gone.
nanoseconds alone(const fs::path& process) {
    nanoseconds sum{0};
    for_each_entry(process / "task", [&](const fs::path& thread) {
        std::int64_t ran = 0;
        if (std::ifstream{thread / "schedstat"} >> ran) sum += nanoseconds{ran};
    });
    return sum;
}

nanoseconds with_descendants(const fs::path& process) {
    nanoseconds sum = alone(process);
    for_each_entry(process / "task", [&](const fs::path& thread) {
        std::ifstream children{thread / "children"};
        for (std::string child; children >> child;)
            sum += with_descendants(fs::path{"/proc"} / child);
    });
    return sum;
}

nanoseconds in_nanoseconds(const timeval& time) {
    return std::chrono::seconds{time.tv_sec} + std::chrono::microseconds{time.tv_usec};
}

}  // namespace

std::optional<pid_t> server_process(const std::string& name) {
    const char* const all = std::getenv("ROWLOCK_SERVER_PROCESSES");
    std::istringstream pairs{all == nullptr ? "" : all};
    for (std::string pair; pairs >> pair;) {
        if (!pair.starts_with(name + "=")) continue;
        pid_t process = 0;
        const char* const number = pair.c_str() + name.size() + 1;
        if (std::from_chars(number, pair.c_str() + pair.size(), process).ec == std::errc{}) {
            return process;
        }
    }
    return std::nullopt;
}

nanoseconds cpu_time_of(pid_t process) {
    const auto time = with_descendants(fs::path{"/proc"} / std::to_string(process));
    if (time == nanoseconds{0}) {
        throw std::runtime_error{"there is no processor time of the server's process " +
                                 std::to_string(process)};
    }
    return time;
}

nanoseconds own_cpu_time() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return in_nanoseconds(used.ru_utime) + in_nanoseconds(used.ru_stime);
}

}  // namespace bench
