#pragma once

#include "stress/history.hpp"
#include <rowlock/history.hpp>
#include <rowlock/sql/connection.hpp>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace support {
class lock_database;
}

/// Checks the database's records of a run (rowlock/history.hpp) by the rules. The processes' own
/// logs (history.hpp) show what holders believed, the records what happened.
namespace stress {

using rowlock::history_kind;

/// The parts of a record that the rules need. Times by the database.
struct record {
    std::int64_t id = 0;
    micros at = 0;
    history_kind kind = history_kind::altered;
    std::string name = {};
    std::int64_t token = 0;
    rowlock::session_id session{};
    rowlock::grant_id grant_id{};
    rowlock::ticket_no ticket{};
    rowlock::session_id previous_session{};
    micros ends_at = 0;  ///< of a queue entry, the limit of its caller; 0: never
    std::int64_t transaction = 0;
    std::string snapshot = {};  ///< PostgreSQL, of queue entries: xmin:xmax:xip_list
};

/// All records, in the order of their ids.
using records = std::vector<record>;

/// How the records show which of two queue entries precedes the other.
enum class order_by : unsigned char {
    snapshot,  ///< PostgreSQL: by the snapshot of the later enqueue
    ticket,    ///< SQLite: one writer
    second,    ///< MariaDB: written more than a second earlier
};

/// C1: a hold starts after the one before has ended: it was released, handed over, ended by force,
/// or its session or its deadline had ended. A dead session stays dead.
[[nodiscard]] violations overlapping_holds(const records& all);
/// C1: the database times that holders read while they trusted their leases lie within the recorded
/// hold, unless force ended it. `slack`: SQLite's clock has milliseconds. A crash may have lost the
/// record of a hand-over that was reported just before, together with the hand-over: no other
/// session gets that lease, and its holder detects it (docs/adr/0023).
[[nodiscard]] violations beliefs_beyond_records(const history& all, const records& truth,
                                                micros slack = 0,
                                                const std::vector<fault>& faults = {});
/// C1: a holder whose release reports a loss has lost the lease by force, by its own deadline, by a
/// crash, or with its session, which has ended `within` afterwards at the latest. Otherwise it was
/// stolen.
[[nodiscard]] violations unexplained_losses(const history& all, const records& truth, micros within,
                                            const std::vector<fault>& faults = {});
/// C2: each grant's token is greater than all earlier ones of its name, and each grant has one
/// token. On Galera, where ids interleave, sort the records by their times first.
[[nodiscard]] violations falling_tokens(const records& all);
/// C2: each grant's holder got the recorded token.
[[nodiscard]] violations other_tokens(const history& all, const records& truth,
                                      const std::vector<fault>& faults = {});
/// C6: no waiter is served before an earlier entry with a lower ticket whose session is live, and
/// whose caller still waits.
[[nodiscard]] violations unfair_grants(const records& all, order_by how);

/// C3: no acknowledged update of the counters is lost or overwritten, and their tokens never fall.
/// @param finals the final values of the counters, by name; all start at 0
[[nodiscard]] violations broken_counters(
    std::vector<guarded_write> writes, const std::unordered_map<std::string, std::int64_t>& finals);

/// C8: the numbers that a run must not change.
struct baseline {
    std::int64_t connections = 0;  ///< this process's connections
    std::int64_t threads = 0;
    std::int64_t descriptors = 0;
    std::int64_t tickets = 0;  ///< in the tables
    std::int64_t holds = 0;
};
[[nodiscard]] baseline baseline_of(support::lock_database& database);
[[nodiscard]] violations leaks(const baseline& before, const baseline& after);

/// Grants that were ended by force, by grant id. Their holders may trust them longer.
[[nodiscard]] std::vector<rowlock::grant_id> forced_grants(const records& all);

/// Switches the database's recording on, and reads the records. On PostgreSQL each record has its
/// transaction and snapshot, in columns that the test adds.
class recording {
public:
    explicit recording(support::lock_database& database);
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
    ~recording();

    [[nodiscard]] records read() const;
    [[nodiscard]] order_by order() const;
    /// One millisecond on databases whose clock has milliseconds.
    [[nodiscard]] micros slack() const;

private:
    support::lock_database& database_;
};

/// The numbers of grants, of those through a queue, of queue entries and of sessions.
[[nodiscard]] std::string summary(const records& all);

}  // namespace stress
