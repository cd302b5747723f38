#include "common/cpu_time.hpp"

#include <sys/resource.h>
#include <unistd.h>

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

/// Of the children that it has waited for: the fields cutime and cstime of proc(5), by their places
/// after the program's name, which may contain spaces.
nanoseconds ended_children_of(const fs::path& process) {
    constexpr int fields_before = 13;
    std::ifstream file{process / "stat"};
    std::string text;
    std::getline(file, text);
    std::istringstream fields{text.substr(text.rfind(')') + 1)};
    std::string skipped;
    for (int i = 0; i < fields_before; ++i) fields >> skipped;
    std::int64_t user = 0;
    std::int64_t system = 0;
    if (!(fields >> user >> system)) return nanoseconds{0};
    return nanoseconds{std::chrono::seconds{user + system}} / ::sysconf(_SC_CLK_TCK);
}

nanoseconds with_descendants(const fs::path& process) {
    nanoseconds sum = alone(process) + ended_children_of(process);
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

nanoseconds used_by(int whom) {
    rusage used{};
    ::getrusage(whom, &used);
    return in_nanoseconds(used.ru_utime) + in_nanoseconds(used.ru_stime);
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
    return used_by(RUSAGE_SELF);
}

nanoseconds ended_children_cpu_time() {
    return used_by(RUSAGE_CHILDREN);
}

std::optional<double> cpu_cost::total_us() const {
    if (std::isnan(client_us)) return std::nullopt;
    return std::isnan(server_us) ? client_us : client_us + server_us;
}

// Reading the servers' time takes milliseconds, which are not the client's.
cpu_meter::cpu_meter(client_clock client)
    : client_time_{client}, server_{server_cpu_time()}, client_{client()} {}

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
    const nanoseconds client = client_time_() - client_;  // first: see the constructor
    return cost_of_one(operations, client, of_servers());
}

}  // namespace bench
