#include "coordination/protocol/multi/multi_dialects.hpp"
#include "coordination/protocol/semaphore/flush_commits.hpp"
#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"

#include <string>

namespace rowlock::protocol {
namespace {

/// Names, grant ids and permits, as arrays.
struct entry_arrays {
    explicit entry_arrays(std::span<const granted_name> of,
                          std::span<const std::int64_t> counts = {}) {
        for (const auto& each : of) {
            names.add(each.name);
            ids.add(each.grant_id);
        }
        for (const auto each : counts) permits.add(each);
    }
    sql::array_text names{}, ids{}, permits{};
};

/// One statement judges all names in one snapshot, locks the rows of those that can be taken, and
/// writes all of them or none.
class postgresql_multi : public multi_protocol {
public:
    explicit postgresql_multi(const sql::statement_set& statements)
        : enqueue_{statements("multi_enqueue")} {}

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto rows = send(db, request, until);
        if (rows.integer(0, 6) != 0 && needs_rows(rows)) {
            entry_arrays all{request.names};
            make_rows(db, all.names.close(), until);
            rows = send(db, request, until);
        }
        return judge(rows, request);
    }

    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override {
        const auto& first = request.names.front();
        entry_arrays others{request.names.subspan(1)};
        std::optional<std::int64_t> weight;
        if (!request.permits.empty()) {
            weight = request.permits.front();
            for (const auto each : request.permits.subspan(1)) others.permits.add(each);
        }
        run(db, enqueue_, until, request.session, first.name, first.grant_id, others.names.close(),
            others.ids.close(), sql::text_or_null(request.thread), sql::text_or_null(request.note),
            request.deadline_us, sql::text_or_null(request.blocks), request.names.size(),
            request.limit_us, weight, others.permits.close());
    }

protected:
    [[nodiscard]] virtual sql::result send(sql::connection& db, const multi_request& request,
                                           sql::deadline until) const = 0;
    virtual void make_rows(sql::connection& db, std::string_view names,
                           sql::deadline until) const = 0;
    /// Whether the rows of some names are missing, and are to be made.
    [[nodiscard]] virtual bool needs_rows(const sql::result& rows) const = 0;
    /// Reads what the columns say beyond those of multi_take.
    virtual void read_further(const sql::result& /*rows*/, std::size_t /*row*/,
                              multi_attempt& /*seen*/) const {}

    [[nodiscard]] static bool is_missing(const sql::result& rows, std::size_t row) {
        return rows.integer(row, 1) == 0;
    }

private:
    [[nodiscard]] multi_attempt judge(const sql::result& rows, const multi_request& request) const {
        if (rows.integer(0, 6) == 0) return {.what = attempt::outcome::session_dead};
        multi_attempt seen{.what = attempt::outcome::held};
        seen.tokens.resize(request.names.size());
        std::size_t granted = 0;
        bool could = true;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            could = could && rows.integer(row, 2) != 0;
            if (const auto expired = rows.maybe_integer<session_id>(row, 3)) {
                seen.expired.push_back(*expired);
            }
            note_remaining(seen, rows.maybe_integer(row, 4));
            read_further(rows, row, seen);
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

    const sql::statement enqueue_;
};

class postgresql_multi_leases final : public postgresql_multi {
public:
    explicit postgresql_multi_leases(const sql::statement_set& statements)
        : postgresql_multi{statements},
          take_{statements("multi_take")},
          restore_{statements("multi_restore")} {}

private:
    [[nodiscard]] sql::result send(sql::connection& db, const multi_request& request,
                                   sql::deadline until) const override {
        entry_arrays all{request.names};
        return run(db, take_, until, request.session, all.names.close(), all.ids.close(),
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, request.queued ? 1 : 0, request.barging ? 1 : 0);
    }
    /// If nothing else is.
    [[nodiscard]] bool needs_rows(const sql::result& rows) const override {
        bool some = false;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (is_missing(rows, row)) {
                some = true;
            } else if (rows.integer(row, 2) == 0) {
                return false;
            }
        }
        return some;
    }
    void make_rows(sql::connection& db, std::string_view names,
                   sql::deadline until) const override {
        run(db, restore_, until, names);
    }
    void read_further(const sql::result& rows, std::size_t row,
                      multi_attempt& seen) const override {
        if (is_missing(rows, row) || rows.integer(row, 2) != 0) return;
        if (rows.integer(row, 9) == 2) throw name_of_semaphore(rows.text(row, 0));
        if (rows.integer(row, 9) == 1) seen.full.emplace_back(rows.text(row, 0));
        note_held(seen, rows.text(row, 0), rows.maybe_integer<session_id>(row, 7),
                  rows.maybe_integer<grant_id>(row, 8));
    }

    const sql::statement take_, restore_;
};

/// The commit is asynchronous, as that of each grant of permits, and a flush follows.
class postgresql_multi_modes final : public postgresql_multi {
public:
    explicit postgresql_multi_modes(const sql::statement_set& statements)
        : postgresql_multi{statements},
          take_{statements("multi_take_permits")},
          restore_{statements("multi_restore")},
          flush_{statements("flush_commits")} {}

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto made = postgresql_multi::take(db, request, until);
        if (made.what == attempt::outcome::granted && db.keeps_session_state()) {
            flush_commits(db, flush_, until);
        }
        return made;
    }

private:
    [[nodiscard]] sql::result send(sql::connection& db, const multi_request& request,
                                   sql::deadline until) const override {
        entry_arrays all{request.names, request.permits};
        return run(db, take_, until, request.session, all.names.close(), all.ids.close(),
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, request.queued ? 1 : 0, all.permits.close(),
                   db.keeps_session_state() ? 1 : 0);
    }
    /// Also if another is held.
    [[nodiscard]] bool needs_rows(const sql::result& rows) const override {
        bool some = false;
        for (std::size_t row = 0; row < rows.rows(); ++row) some = some || is_missing(rows, row);
        return some;
    }
    void make_rows(sql::connection& db, std::string_view names,
                   sql::deadline until) const override {
        run(db, restore_, until, names);
    }
    void read_further(const sql::result& rows, std::size_t row,
                      multi_attempt& seen) const override {
        const auto name = rows.text(row, 0);
        if (rows.maybe_integer(row, 7) == 0) throw name_of_semaphore(name);
        if (rows.maybe_integer(row, 8) == 1) seen.full.emplace_back(name);
    }

    const sql::statement take_, restore_, flush_;
};

}  // namespace

std::unique_ptr<const multi_protocol> make_postgresql_multi(const sql::statement_set& statements) {
    return std::make_unique<const postgresql_multi_leases>(statements);
}

std::unique_ptr<const multi_protocol> make_postgresql_multi_modes(
    const sql::statement_set& statements) {
    return std::make_unique<const postgresql_multi_modes>(statements);
}

}  // namespace rowlock::protocol
