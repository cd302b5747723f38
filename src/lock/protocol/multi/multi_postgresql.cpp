#include "lock/protocol/multi/multi_dialects.hpp"
#include "lock/protocol/semaphore/flush_commits.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"

#include <string>

namespace rowlock::protocol {
namespace {

/// As arrays.
struct wanted_arrays {
    explicit wanted_arrays(std::span<const wanted_name> of) {
        for (const auto& each : of) {
            names.add(each.name);
            ids.add(each.grant_id);
            weights.add(weight_of(each.what));
            kinds.add(each.what.is_part() ? static_cast<std::int64_t>(each.what.of) : 1);
        }
    }
    /// NULL: all of the lock.
    static std::optional<std::int64_t> weight_of(const wanted_permits& what) {
        return what.is_part() ? std::optional{what.count} : std::nullopt;
    }
    sql::array_text names{}, ids{}, weights{}, kinds{};
};

/// One statement judges all names in one snapshot, locks the rows of those that can be taken, and
/// writes all of them or none. With a part among them the commit is asynchronous, as that of each
/// counted grant, and a flush follows.
class postgresql_multi final : public multi_protocol {
public:
    explicit postgresql_multi(const sql::statement_set& statements)
        : take_{statements("multi_take")},
          restore_{statements("multi_restore")},
          flush_{statements("flush_commits")},
          enqueue_{statements("multi_enqueue")} {}

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto rows = send(db, request, until);
        if (rows.integer(0, 6) != 0 && needs_rows(rows, request)) {
            wanted_arrays all{request.names};
            run(db, restore_, until, all.names.close());
            rows = send(db, request, until);
        }
        auto made = judge(rows, request);
        if (made.what == attempt::outcome::granted && is_asynchronous(db, request)) {
            flush_commits(db, flush_, until);
        }
        return made;
    }

    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override {
        const auto& first = request.names.front();
        wanted_arrays others{request.names.subspan(1)};
        run(db, enqueue_, until, request.session, first.name, first.grant_id, others.names.close(),
            others.ids.close(), sql::text_or_null(request.thread), sql::text_or_null(request.note),
            request.deadline_us, sql::text_or_null(request.blocks), request.names.size(),
            request.limit_us, wanted_arrays::weight_of(first.what), others.weights.close());
    }

private:
    [[nodiscard]] static bool is_asynchronous(const sql::connection& db,
                                              const multi_request& request) {
        return request.has_parts() && db.keeps_session_state();
    }

    [[nodiscard]] sql::result send(sql::connection& db, const multi_request& request,
                                   sql::deadline until) const {
        wanted_arrays all{request.names};
        return run(db, take_, until, request.session, all.names.close(), all.ids.close(),
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, request.queued ? 1 : 0, request.barging ? 1 : 0,
                   all.weights.close(), all.kinds.close(), is_asynchronous(db, request) ? 1 : 0);
    }

    /// Whether the rows of some names are missing, and are to be made: of a part in any case, else
    /// if nothing else is in the way.
    [[nodiscard]] static bool needs_rows(const sql::result& rows, const multi_request& request) {
        bool some = false;
        bool others_held = false;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.integer(row, 1) == 0) {
                some = true;
                const auto& wanted = request.names[place_of(request, rows.text(row, 0))];
                require_obtainable(wanted.name, wanted.what, std::nullopt);
                if (wanted.what.is_part()) return true;
            } else if (rows.integer(row, 2) == 0) {
                others_held = true;
            }
        }
        return some && !others_held;
    }

    [[nodiscard]] static multi_attempt judge(const sql::result& rows,
                                             const multi_request& request) {
        if (rows.integer(0, 6) == 0) return {.what = attempt::outcome::session_dead};
        multi_attempt seen{.what = attempt::outcome::held};
        seen.tokens.resize(request.names.size());
        std::size_t granted = 0;
        bool could = true;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const bool can = rows.integer(row, 2) != 0;
            could = could && can;
            if (!can) note_in_the_way(rows, row, request, seen);
            const auto token = rows.maybe_integer(row, 5);
            if (!token) continue;
            seen.tokens.at(place_of(request, rows.text(row, 0))) = *token;
            ++granted;
        }
        if (granted == request.names.size()) {
            seen.what = attempt::outcome::granted;
        } else if (could) {
            seen.what = attempt::outcome::contested;
        }
        return seen;
    }

    static void note_in_the_way(const sql::result& rows, std::size_t row,
                                const multi_request& request, multi_attempt& seen) {
        if (rows.integer(row, 1) == 0) return;
        const auto name = rows.text(row, 0);
        const auto& wanted = request.names[place_of(request, name)];
        require_obtainable(name, wanted.what, rows.maybe_integer(row, 7));
        if (rows.integer(row, 8) != 0) seen.full.emplace_back(name);
        if (wanted.what.is_part()) return;
        if (const auto expired = rows.maybe_integer<session_id>(row, 3)) {
            seen.expired.push_back(*expired);
        }
        note_remaining(seen, rows.maybe_integer(row, 4));
    }

    const sql::statement take_, restore_, flush_, enqueue_;
};

}  // namespace

std::unique_ptr<const multi_protocol> make_postgresql_multi(const sql::statement_set& statements) {
    return std::make_unique<const postgresql_multi>(statements);
}

}  // namespace rowlock::protocol
