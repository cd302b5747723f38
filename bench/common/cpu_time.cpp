#include "common/cpu_time.hpp"

#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
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

std::optional<nanoseconds> server_cpu_time() {
    const char* const all = std::getenv("ROWLOCK_SERVER_PROCESSES");
    std::istringstream pairs{all == nullptr ? "" : all};
    nanoseconds sum{0};
    bool any = false;
    for (std::string pair; pairs >> pair;) {
        any = true;
        sum += with_descendants(fs::path{"/proc"} / pair.substr(pair.find('=') + 1));
    }
    if (!any) return std::nullopt;
    if (sum == nanoseconds{0}) {
        throw std::runtime_error{"the kernel keeps no account of the servers' processor time"};
    }
    return sum;
}

nanoseconds own_cpu_time() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return in_nanoseconds(used.ru_utime) + in_nanoseconds(used.ru_stime);
}

std::optional<double> cpu_cost::total_us() const {
    if (std::isnan(client_us)) return std::nullopt;
    return std::isnan(server_us) ? client_us : client_us + server_us;
}

cpu_meter::cpu_meter() : server_{server_cpu_time()}, client_{own_cpu_time()} {}

cpu_cost cost_of_one(double operations, nanoseconds client, std::optional<nanoseconds> servers) {
    if (operations <= 0) return {};
    const auto of_one = [&](std::chrono::duration<double, std::micro> time) {
        return time.count() / operations;
    };
    cpu_cost cost{.client_us = of_one(client)};
    if (servers) cost.server_us = of_one(*servers);
    return cost;
}

std::optional<nanoseconds> cpu_meter::of_servers() const {
    const auto now = server_cpu_time();
    if (!now || !server_) return std::nullopt;
    return *now - *server_;
}

cpu_cost cpu_meter::for_each_of(double operations) const {
    return cost_of_one(operations, own_cpu_time() - client_, of_servers());
}

}  // namespace bench
