#include "handoff/race.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace handoff {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

using nanos = std::int64_t;
static_assert(std::atomic<nanos>::is_always_lock_free, "shared by processes");

// CLOCK_MONOTONIC, which all processes of a machine share.
nanos now() {
    return std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void pause(nanoseconds duration) {
    const timespec wanted{static_cast<time_t>(duration.count() / 1'000'000'000),
                          static_cast<long>(duration.count() % 1'000'000'000)};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, nullptr);
}

constexpr std::size_t problem_size = 256;

/// One process's part of the shared memory, which only it writes.
struct alignas(64) lane {
    std::atomic<bool> ready;
    std::atomic<std::uint64_t> statements;
    std::atomic<std::uint64_t> grants;
    std::atomic<std::uint64_t> handoffs;
    std::atomic<nanos> longest_wait;
    std::atomic<nanos> cpu;  ///< of its process, during the race
    char problem[problem_size];
};

struct alignas(64) track {
    std::atomic<nanos> started;  ///< 0: not yet
    std::atomic<nanos> counted;  ///< when the warm-up was over; 0: not yet
    std::atomic<nanos> stopped;
    std::atomic<std::uint64_t> overlaps;
    std::atomic<int> holders;
    std::atomic<nanos> released;  ///< the time at which the last holder called release
    std::atomic<int> released_by;
};

/// Anonymous memory that children inherit and share.
class arena {
public:
    arena(int clients, std::size_t samples_each)
        : clients_{static_cast<std::size_t>(clients)}, samples_each_{samples_each} {
        bytes_ = sizeof(track) + clients_ * (sizeof(lane) + samples_each_ * sizeof(std::uint32_t));
        memory_ =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory_ == MAP_FAILED) {
            throw std::system_error{errno, std::generic_category(), "no shared memory"};
        }
        new (memory_) track{};
        track_of().released_by = -1;
        for (std::size_t i = 0; i < clients_; ++i) new (&lanes()[i]) lane{};
    }
    ~arena() { ::munmap(memory_, bytes_); }
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;

    [[nodiscard]] track& track_of() const { return *static_cast<track*>(memory_); }
    [[nodiscard]] std::span<lane> lanes() const {
        return {reinterpret_cast<lane*>(static_cast<std::byte*>(memory_) + sizeof(track)),
                clients_};
    }
    /// Hand-offs in tenths of a microsecond, so that four bytes hold seven minutes.
    [[nodiscard]] std::span<std::uint32_t> samples(std::size_t index) const {
        auto* const first = reinterpret_cast<std::uint32_t*>(lanes().data() + clients_);
        return {first + index * samples_each_, samples_each_};
    }

private:
    std::size_t clients_;
    std::size_t samples_each_;
    std::size_t bytes_ = 0;
    void* memory_ = nullptr;
};

/// Child processes. The destructor kills those that still run.
class children {
public:
    children() = default;
    children(const children&) = delete;
    children& operator=(const children&) = delete;
    ~children() {
        for (const pid_t each : running_) ::kill(each, SIGKILL);
        while (!running_.empty()) await(running_.back());
    }

    /// Runs `body` in a child, which ends with what it returns.
    pid_t start(const std::function<int()>& body) {
        const pid_t parent = ::getpid();
        const pid_t child = ::fork();
        if (child < 0) throw std::system_error{errno, std::generic_category(), "cannot fork"};
        if (child == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);
            ::_exit(body());
        }
        running_.push_back(child);
        return child;
    }

    /// True once all have ended; remembers whether one ended badly.
    bool all_ended() {
        std::vector<pid_t> left;
        for (const pid_t each : running_) {
            int status = 0;
            if (::waitpid(each, &status, WNOHANG) == 0) {
                left.push_back(each);
            } else {
                failed_ = failed_ || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            }
        }
        running_ = std::move(left);
        return running_.empty();
    }
    [[nodiscard]] bool failed() const { return failed_; }

private:
    void await(pid_t child) {
        int status = 0;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        std::erase(running_, child);
    }

    std::vector<pid_t> running_;
    bool failed_ = false;
};

void tell(char (&into)[problem_size], const char* text) {
    std::strncpy(into, text, problem_size - 1);
}

// --- in the children -----------------------------------------------------------------------------

class runner {
public:
    runner(contender& who, const arena& shared, int index, nanoseconds hold)
        : who_{who},
          track_{shared.track_of()},
          lane_{shared.lanes()[static_cast<std::size_t>(index)]},
          samples_{shared.samples(static_cast<std::size_t>(index))},
          index_{index},
          hold_{hold} {}

    void run() {
        lane_.ready = true;
        while (track_.started == 0) pause(200us);
        cpu_before_ = bench::own_cpu_time();
        // Every process makes one more acquire after the stop. If one left earlier, others could
        // wait for it (in a ring).
        for (bool last = false; !last;) {
            const nanos asked = now();
            who_.acquire();
            const nanos got = now();
            if (track_.holders.fetch_add(1) != 0) ++track_.overlaps;
            last = note_grant(asked, got);
            if (!last) pause(hold_);
            track_.released_by = index_;
            track_.holders.fetch_sub(1);
            track_.released = now();
            who_.release();
        }
        lane_.cpu = (bench::own_cpu_time() - cpu_before_).count();
    }

private:
    /// True if the race was over by then: such a grant counts for the longest wait alone.
    bool note_grant(nanos asked, nanos got) {
        const nanos stopped = track_.stopped;
        if (stopped == 0 && track_.counted == 0) {
            cpu_before_ = bench::own_cpu_time();
            return false;
        }
        const nanos until = stopped == 0 ? got : std::min(got, stopped);
        lane_.longest_wait = std::max(lane_.longest_wait.load(), until - asked);
        if (stopped != 0) return true;
        ++lane_.grants;
        const int before = track_.released_by;
        const std::uint64_t used = lane_.handoffs;
        if (before < 0 || before == index_ || used == samples_.size()) return false;
        samples_[used] =
            static_cast<std::uint32_t>(std::min<nanos>((got - track_.released) / 100, UINT32_MAX));
        lane_.handoffs = used + 1;
        return false;
    }

    contender& who_;
    track& track_;
    lane& lane_;
    std::span<std::uint32_t> samples_;
    int index_;
    nanoseconds hold_;
    nanoseconds cpu_before_{0};
};

int take_part(const contest& what, const race_options& options, const arena& shared, int index) {
    lane& mine = shared.lanes()[static_cast<std::size_t>(index)];
    try {
        ::prctl(PR_SET_TIMERSLACK, 1UL);
        const auto who = what.join({index, options.clients, mine.statements});
        runner{*who, shared, index, options.hold}.run();
        return 0;
    } catch (const std::exception& failure) {
        tell(mine.problem, failure.what());
        return 1;
    }
}

/// All parts, each on a thread of this process.
int take_part_together(const contest& what, const race_options& options, const arena& shared) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < options.clients; ++i) {
        threads.emplace_back([&, i] {
            // At once: the others may wait for it.
            if (take_part(what, options, shared, i) != 0) ::_exit(1);
        });
    }
    return 0;
}

// --- in the parent -------------------------------------------------------------------------------

[[noreturn]] void report_failure(const contest& what, const arena& shared) {
    std::string message = what.title + ": a process ended without a word";
    for (const lane& each : shared.lanes()) {
        if (each.problem[0] != '\0') message = what.title + ": " + each.problem;
    }
    throw std::runtime_error{message};
}

std::uint64_t statements_so_far(const arena& shared) {
    std::uint64_t sum = 0;
    for (const lane& each : shared.lanes()) sum += each.statements;
    return sum;
}

void await_readiness(const contest& what, const arena& shared, children& crew) {
    const auto last = steady_clock::now() + patience;
    const auto waits = [](const lane& each) { return !each.ready; };
    while (std::ranges::any_of(shared.lanes(), waits)) {
        crew.all_ended();
        if (crew.failed()) report_failure(what, shared);
        if (steady_clock::now() > last) {
            throw std::runtime_error{what.title + ": not every process got ready"};
        }
        pause(1ms);
    }
}

void await_end(const contest& what, const arena& shared, children& crew) {
    const auto last = steady_clock::now() + 2 * patience;
    while (!crew.all_ended()) {
        if (crew.failed()) report_failure(what, shared);
        if (steady_clock::now() > last) {
            throw std::runtime_error{what.title + ": not every process came to an end"};
        }
        pause(1ms);
    }
    if (crew.failed()) report_failure(what, shared);
}

double quantile_us(std::vector<std::uint32_t>& samples, double fraction) {
    if (samples.empty()) return std::nan("");
    const auto rank = static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1));
    const auto at = samples.begin() + static_cast<std::ptrdiff_t>(rank);
    std::ranges::nth_element(samples, at);
    return static_cast<double>(*at) / 10;
}

/// The processor time of the clients. Threads of one process share it: then each lane has all of
/// it.
nanoseconds cpu_of(const arena& shared, bool one_process) {
    nanos sum = 0;
    for (const lane& each : shared.lanes()) {
        sum = one_process ? std::max(sum, each.cpu.load()) : sum + each.cpu;
    }
    return nanoseconds{sum};
}

race_result count(const arena& shared, std::uint64_t statements, nanoseconds clients,
                  std::optional<nanoseconds> servers) {
    race_result result;
    std::vector<std::uint32_t> samples;
    std::uint64_t grants = 0;
    nanos longest = 0;
    result.fewest = UINT64_MAX;
    for (std::size_t i = 0; i < shared.lanes().size(); ++i) {
        const lane& each = shared.lanes()[i];
        grants += each.grants;
        result.fewest = std::min(result.fewest, each.grants.load());
        result.most = std::max(result.most, each.grants.load());
        longest = std::max(longest, each.longest_wait.load());
        const auto own = shared.samples(i).first(each.handoffs);
        samples.insert(samples.end(), own.begin(), own.end());
    }
    const track& whole = shared.track_of();
    const double seconds = static_cast<double>(whole.stopped - whole.counted) / 1e9;
    result.grants_per_second = static_cast<double>(grants) / seconds;
    result.handoff_p50_us = quantile_us(samples, 0.50);
    result.handoff_p99_us = quantile_us(samples, 0.99);
    if (grants != 0) {
        result.statements_per_grant = static_cast<double>(statements) / static_cast<double>(grants);
    }
    result.longest_wait =
        std::chrono::duration_cast<std::chrono::microseconds>(nanoseconds{longest});
    result.overlaps = whole.overlaps;
    result.cpu = bench::cost_of_one(static_cast<double>(grants), clients, servers);
    return result;
}

}  // namespace

race_result run_race(const contest& what, const race_options& options) {
    // No client gets more grants than fit into the duration one after the other.
    const auto most = options.duration / std::max(options.hold, std::chrono::microseconds{20});
    const arena shared{options.clients, static_cast<std::size_t>(most) + 1000};
    track& whole = shared.track_of();
    children crew;
    if (what.one_process) {
        crew.start([&] { return take_part_together(what, options, shared); });
    } else {
        for (int i = 0; i < options.clients; ++i) {
            crew.start([&, i] { return take_part(what, options, shared, i); });
        }
    }
    await_readiness(what, shared, crew);
    const auto let_run = [&](nanoseconds duration) {
        const auto last = steady_clock::now() + duration;
        while (steady_clock::now() < last) {
            pause(std::min<nanoseconds>(10ms, last - steady_clock::now()));
            crew.all_ended();
            if (crew.failed()) report_failure(what, shared);
        }
    };
    whole.started = now();
    let_run(options.warm_up);
    const std::uint64_t before = statements_so_far(shared);
    const bench::cpu_meter servers;
    whole.counted = now();
    let_run(options.duration);
    whole.stopped = now();
    const auto servers_used = servers.of_servers();  // while the clients' processes there live
    const std::uint64_t statements = statements_so_far(shared) - before;
    await_end(what, shared, crew);
    return count(shared, statements, cpu_of(shared, what.one_process), servers_used);
}

void in_child(const std::function<void()>& action) {
    const arena shared{1, 0};
    lane& mine = shared.lanes()[0];
    children crew;
    crew.start([&] {
        try {
            action();
            return 0;
        } catch (const std::exception& failure) {
            tell(mine.problem, failure.what());
            return 1;
        }
    });
    while (!crew.all_ended()) pause(1ms);
    if (crew.failed()) {
        throw std::runtime_error{mine.problem[0] == '\0' ? "a process ended without a word"
                                                         : mine.problem};
    }
}

}  // namespace handoff
