#pragma once

#include <rowlock/ids.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_set>
#include <vector>

/// The history of many processes with a few locks, and the rules that it must satisfy. Processes
/// write their actions as lines of text, at once, so that a killed one's are known too. All times
/// are microseconds; `called` … `released` of CLOCK_BOOTTIME (one host), db_… by the database.
namespace stress {

using micros = std::int64_t;
inline constexpr micros never = std::numeric_limits<micros>::max();

[[nodiscard]] micros boot_time() noexcept;
/// CLOCK_REALTIME, the clock of a database on this host.
[[nodiscard]] micros wall_time() noexcept;

/// One grant, as its holder saw it.
struct observed_hold {
    std::string name;
    pid_t process = 0;
    int thread = 0;
    std::int64_t token = 0;
    rowlock::session_id session{};
    rowlock::grant_id grant_id{};
    micros called = 0;
    micros acquired = 0;
    micros db_begin = 0;        ///< 0: no longer held when the clock had been read
    micros db_end = 0;          ///< the last reading after which held() was still true
    micros believed_until = 0;  ///< the last moment for which held() was still true afterwards
    micros release_called = 0;  ///< 0: never (killed)
    micros released = 0;
    std::string result;  ///< of the release: "ok", or the kind of error
};

/// One call of acquire, with any result.
struct attempt {
    std::string name;
    pid_t process = 0;
    int thread = 0;
    micros called = 0;
    micros waiting = 0;      ///< the time of its enqueue; 0: not reported
    micros returned = 0;     ///< 0: never
    std::int64_t token = 0;  ///< 0: no grant
    bool queues = false;     ///< false: try_acquire, which does not queue
    std::string result;      ///< "granted", "none", "stopped", or the kind of error
};

/// A write of a counter under a fence: `after` replaced `before`.
struct guarded_write {
    std::string name = {};
    std::int64_t token = 0;
    std::int64_t before = 0;
    std::int64_t after = 0;
    bool acknowledged = true;  ///< false: the reply was lost, and the write is uncertain
};

struct history {
    std::vector<observed_hold> holds;
    /// Grants that were ended by force. Their holders learn of it later.
    std::unordered_set<rowlock::grant_id> forced;
    std::vector<attempt> attempts;
    std::vector<guarded_write> writes;
    std::vector<std::string> notes;  ///< notes of the processes

    /// Adds the log of one process.
    void read(const std::string& path, pid_t process);
};

/// A fault that was caused, for the bounds that it relaxes.
struct fault {
    micros at = 0;
    micros over = 0;  ///< when the process was continued, the killer had ended …
    std::string what;
};

/// The broken rules, a sentence each. Empty if all hold.
using violations = std::vector<std::string>;

/// C1: holds of one name never overlap by the database's clock.
[[nodiscard]] violations overlaps(const history& all);
/// C5: the times in which holders trusted them never overlap either.
[[nodiscard]] violations overlapping_beliefs(const history& all);
/// C2: of two holds of one name the later one has the greater token.
[[nodiscard]] violations token_regressions(const history& all);
/// C6: an entry that was enqueued before another was requested is served before it. For histories
/// in which one thread of a process requests a name, and waits until it is granted.
[[nodiscard]] violations unfair_calls(const history& all);
/// Results of calls and releases that are not among `allowed`.
[[nodiscard]] violations unexpected_results(const history& all,
                                            const std::vector<std::string>& allowed);
/// The distinct messages of exceptions, a line each.
[[nodiscard]] std::string failures_in(const history& all);

/// The time that each lease took from a release to the next holder, which was waiting already.
struct hand_off {
    std::string name;
    micros from = 0;  ///< release called, or the next holder's call if that came later
    micros took = 0;
    std::int64_t token = 0;  ///< the next holder's token
};
[[nodiscard]] std::vector<hand_off> hand_offs(const history& all);
/// The time within which a share of the hand-offs stays.
[[nodiscard]] micros percentile(std::vector<hand_off> all, double share);
[[nodiscard]] std::string summary(const std::vector<hand_off>& all);

/// C7: a lease with waiters is granted within `usual` after its release, and within `after_fault`
/// after the last fault near it.
struct liveness {
    micros usual;
    micros after_fault;
};
[[nodiscard]] violations late_grants(const history& all, const std::vector<fault>& faults,
                                     const liveness& bounds);

/// The first few of them, to be printed.
[[nodiscard]] std::string told(const violations& all);

}  // namespace stress
