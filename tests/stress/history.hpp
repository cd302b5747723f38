#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

/// What many processes did to a few locks, and the rules that it is held against. Processes write
/// what happens as lines of text, at once, so that what a killed one did is known too. All times
/// are microseconds; `called` … `released` of CLOCK_BOOTTIME (one host), db_… by the database.
namespace stress {

using micros = std::int64_t;

[[nodiscard]] micros boot_time() noexcept;
/// CLOCK_REALTIME: that of a database on this host.
[[nodiscard]] micros wall_time() noexcept;

/// One grant, as its holder saw it.
struct observed_hold {
    std::string name;
    pid_t process = 0;
    int thread = 0;
    std::int64_t token = 0;
    std::int64_t session = 0;
    std::int64_t grant_id = 0;
    micros called = 0;
    micros acquired = 0;
    micros db_begin = 0;        ///< 0: it was not held any more when the clock had been read
    micros db_end = 0;          ///< the last reading after which held() was still true
    micros believed_until = 0;  ///< the last moment for which held() was still true afterwards
    micros release_called = 0;  ///< 0: never (killed)
    micros released = 0;
    std::string result;  ///< of the release: "ok", or the kind of error
};

/// One call of acquire, whatever came of it.
struct attempt {
    std::string name;
    pid_t process = 0;
    int thread = 0;
    micros called = 0;
    micros waiting = 0;      ///< when its place in the queue had been taken; 0: not told
    micros returned = 0;     ///< 0: never
    std::int64_t token = 0;  ///< 0: no grant
    bool queues = false;     ///< false: try_acquire, which has no place in the order
    std::string result;      ///< "granted", "none", "stopped", or the kind of error
};

/// A write of a counter that a fence guards: `after` was written in place of `before`.
struct guarded_write {
    std::string name = {};
    std::int64_t token = 0;
    std::int64_t before = 0;
    std::int64_t after = 0;
    bool acknowledged = true;  ///< false: the reply was lost, it may have happened or not
};

struct history {
    std::vector<observed_hold> holds;
    /// Grants that somebody ended by force; their holders learn of it later.
    std::unordered_set<std::int64_t> forced;
    std::vector<attempt> attempts;
    std::vector<guarded_write> writes;
    std::vector<std::string> notes;  ///< what processes said in plain words

    /// Adds what one process wrote.
    void read(const std::string& path, pid_t process);
};

/// A fault that was made, for the bounds that it loosens.
struct fault {
    micros at = 0;
    micros over = 0;  ///< when the process went on, the killer was done …
    std::string what;
};

/// What broke, a sentence each; empty is good.
using violations = std::vector<std::string>;

/// C1: holds of one name never overlap by the database's clock.
[[nodiscard]] violations overlaps(const history& all);
/// C5: nor do the times in which holders believed in them.
[[nodiscard]] violations overlapping_beliefs(const history& all);
/// C2: of two holds of one name the later one has the greater token.
[[nodiscard]] violations token_regressions(const history& all);
/// C6: a place that was taken before another was asked for is served before it. For histories in
/// which one thread of a process asks for a name, and waits until it gets it.
[[nodiscard]] violations unfair_calls(const history& all);
/// Results of calls and releases that are not among `allowed`.
[[nodiscard]] violations unexpected_results(const history& all,
                                            const std::vector<std::string>& allowed);
/// What calls said when they threw, each once, a line each.
[[nodiscard]] std::string failures_in(const history& all);

/// How long each lease took from a releaser to the next, who waited for it already.
struct hand_off {
    std::string name;
    micros from = 0;  ///< release called, or the successor's call if that came later
    micros took = 0;
    std::int64_t token = 0;  ///< of the successor
};
[[nodiscard]] std::vector<hand_off> hand_offs(const history& all);
/// The value that a share of the hand-offs stays within.
[[nodiscard]] micros percentile(std::vector<hand_off> all, double share);
[[nodiscard]] std::string summary(const std::vector<hand_off>& all);

/// C7: a lease that somebody waits for is granted within `usual` after it was released, and within
/// `after_fault` after the last fault near it.
struct liveness {
    micros usual;
    micros after_fault;
};
[[nodiscard]] violations late_grants(const history& all, const std::vector<fault>& faults,
                                     const liveness& bounds);

/// The first few of them, to be printed.
[[nodiscard]] std::string told(const violations& all);

}  // namespace stress
