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

/// What the database recorded of a run (rowlock/history.hpp), held against the rules. The
/// processes' own logs (history.hpp) say what holders believed; this says what was.
namespace stress {

using rowlock::history_kind;

/// A record, with what the rules need of it. Times by the database.
struct record {
    std::int64_t id = 0;
    micros at = 0;
    history_kind kind = history_kind::altered;
    std::string name = {};
    std::int64_t token = 0;
    std::int64_t session = 0;
    std::int64_t grant_id = 0;
    std::int64_t ticket = 0;
    std::int64_t previous_session = 0;
    micros ends_at = 0;  ///< 0: never
    std::int64_t transaction = 0;
    std::string snapshot = {};  ///< PostgreSQL, of places: xmin:xmax:xip_list
};

/// All records, in the order of their ids.
using records = std::vector<record>;

/// How the database tells which of two places stood before the other.
enum class order_by : unsigned char {
    snapshot,  ///< PostgreSQL: by what the later one's enqueue saw
    ticket,    ///< SQLite: one writer
    second,    ///< MariaDB: it was written more than a second earlier
};

/// C1: a hold begins when the one before has ended: it was released, handed over, ended by force,
/// or its session or its deadline had ended. A dead session stays dead.
[[nodiscard]] violations overlapping_holds(const records& all);
/// C1: what holders saw by the database's clock while they believed lies within the hold that is
/// recorded, unless force ended it. `slack`: SQLite's clock has milliseconds.
/// A server that crashed may have lost the record of a hand-over that it had told of a moment
/// before, together with the hand-over: nobody else gets that lease, and its holder finds out
/// (docs/adr/0023).
[[nodiscard]] violations beliefs_beyond_records(const history& all, const records& truth,
                                                micros slack = 0,
                                                const std::vector<fault>& faults = {});
/// C1: who is told at its release that the lease was lost has lost it by force, by its own
/// deadline, by a crash, or with its session, which is over at the latest `within` afterwards. Else
/// it was stolen.
[[nodiscard]] violations unexplained_losses(const history& all, const records& truth, micros within,
                                            const std::vector<fault>& faults = {});
/// C2: of each name every grant's token is greater than all before, and each grant has one token.
/// On Galera, where ids interleave, put the records in the order of their times before.
[[nodiscard]] violations falling_tokens(const records& all);
/// … and that is the token that its holder was told.
[[nodiscard]] violations other_tokens(const history& all, const records& truth,
                                      const std::vector<fault>& faults = {});
/// C6: nobody is served while a lower ticket stands that stood before his, of a session that lives.
[[nodiscard]] violations unfair_grants(const records& all, order_by how);

/// C3: no acknowledged update of the counters is lost or overwritten, and their tokens never fall.
/// @param finals what the counters show in the end, by name; all began at 0
[[nodiscard]] violations broken_counters(
    std::vector<guarded_write> writes, const std::unordered_map<std::string, std::int64_t>& finals);

/// C8: what a run must leave as it found it.
struct baseline {
    std::int64_t connections = 0;  ///< of this process
    std::int64_t threads = 0;
    std::int64_t descriptors = 0;
    std::int64_t tickets = 0;  ///< in the tables
    std::int64_t holds = 0;
};
[[nodiscard]] baseline baseline_of(support::lock_database& database);
[[nodiscard]] violations leaks(const baseline& before, const baseline& after);

/// Grants that were ended by force, by grant id; beliefs may outlive those.
[[nodiscard]] std::vector<std::int64_t> forced_grants(const records& all);

/// Has the database record, and reads that. On PostgreSQL each record keeps its transaction and
/// what that saw, in columns that are the test's own.
class recording {
public:
    explicit recording(support::lock_database& database);
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;

    [[nodiscard]] records read() const;
    [[nodiscard]] order_by order() const;
    /// One millisecond where the clock has no more.
    [[nodiscard]] micros slack() const;

private:
    support::lock_database& database_;
};

/// In numbers: grants, how many of them through a queue, places, sessions.
[[nodiscard]] std::string summary(const records& all);

}  // namespace stress
