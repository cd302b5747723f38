#include "clients/process_crew.hpp"

#include "common/cpu_time.hpp"
#include "common/ours.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// What a process reports of a round; the times of its turns follow.
struct report {
    std::uint64_t turns = 0;
    double seconds = 0;
    std::int64_t cpu_ns = 0;
};

void write_all(int to, const void* bytes, std::size_t size) {
    const auto* next = static_cast<const char*>(bytes);
    while (size > 0) {
        const auto count = ::write(to, next, size);
        if (count < 0) throw std::system_error{errno, std::generic_category(), "a pipe is broken"};
        next += count;
        size -= static_cast<std::size_t>(count);
    }
}

/// False at the end.
bool read_all(int from, void* bytes, std::size_t size) {
    auto* next = static_cast<char*>(bytes);
    while (size > 0) {
        const auto count = ::read(from, next, size);
        if (count < 0) throw std::system_error{errno, std::generic_category(), "a pipe is broken"};
        if (count == 0) return false;
        next += count;
        size -= static_cast<std::size_t>(count);
    }
    return true;
}

}  // namespace

process_crew::process_crew(const tables& where, int processes) {
    for (int i = 0; i < processes; ++i) {
        std::array<int, 2> in{};
        std::array<int, 2> out{};
        if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
            throw std::system_error{errno, std::generic_category(), "no pipe"};
        }
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
        std::vector<std::string> words{"clients", "--member", where.url(), where.prefix(),
                                       fmt::format("process-{}", i)};
        std::vector<char*> pointers;
        for (auto& each : words) pointers.push_back(each.data());
        pointers.push_back(nullptr);
        process made{.to = in[1], .from = out[0]};
        const int failed =
            ::posix_spawn(&made.id, "/proc/self/exe", &files, nullptr, pointers.data(), environ);
        posix_spawn_file_actions_destroy(&files);
        ::close(in[0]);
        ::close(out[1]);
        all_.push_back(made);
        if (failed != 0) throw std::system_error{failed, std::generic_category(), "no process"};
    }
    (void)run_round(milliseconds{1});
}

process_crew::~process_crew() {
    for (const auto& each : all_) {
        ::close(each.to);
        ::close(each.from);
        if (each.id > 0) ::waitpid(each.id, nullptr, 0);
    }
}

pace process_crew::run_round(milliseconds duration) {
    const cpu_meter servers;
    const auto before = servers.of_servers();
    const std::int64_t ms = duration.count();
    for (const auto& each : all_) write_all(each.to, &ms, sizeof ms);
    std::vector<double> turns_us;
    std::chrono::nanoseconds cpu{};
    pace result;
    for (const auto& each : all_) {
        report one;
        if (!read_all(each.from, &one, sizeof one)) throw std::runtime_error{"a process has ended"};
        const auto first = turns_us.size();
        turns_us.resize(first + one.turns);
        if (!read_all(each.from, turns_us.data() + first, one.turns * sizeof(double))) {
            throw std::runtime_error{"a process has ended"};
        }
        std::vector<double> own(turns_us.begin() + static_cast<std::ptrdiff_t>(first),
                                turns_us.end());
        result.worst_p99_us = std::max(result.worst_p99_us, quantile(own, 0.99));
        cpu += std::chrono::nanoseconds{one.cpu_ns};
        result.per_second += static_cast<double>(one.turns) / one.seconds;
    }
    const auto after = servers.of_servers();
    std::optional<std::chrono::nanoseconds> of_servers;
    if (before && after) of_servers = *after - *before;
    result.cpu = cost_of_one(static_cast<double>(turns_us.size()), cpu, of_servers);
    result.p50_us = quantile(turns_us, 0.50);
    result.p99_us = quantile(turns_us, 0.99);
    return result;
}

void run_as_member(const crew_member& who) {
    const auto locks = std::make_shared<rowlock::client>(
        rowlock::open(who.url).with_tables({.prefix = who.prefix}));
    const auto mine = our_lease(locks, who.lock);
    for (std::int64_t ms = 0; read_all(STDIN_FILENO, &ms, sizeof ms);) {
        std::vector<double> turns_us;
        const auto cpu = own_cpu_time();
        const auto begin = steady_clock::now();
        // At least one turn, so that each round has its times.
        for (auto before = begin; turns_us.empty() || before - begin < milliseconds{ms};) {
            mine->turn();
            const auto after = steady_clock::now();
            turns_us.push_back(std::chrono::duration<double, std::micro>{after - before}.count());
            before = after;
        }
        const report one{
            .turns = turns_us.size(),
            .seconds = std::chrono::duration<double>{steady_clock::now() - begin}.count(),
            .cpu_ns = (own_cpu_time() - cpu).count()};
        write_all(STDOUT_FILENO, &one, sizeof one);
        write_all(STDOUT_FILENO, turns_us.data(), turns_us.size() * sizeof(double));
    }
}

}  // namespace bench
