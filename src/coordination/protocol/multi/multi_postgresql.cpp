#include "coordination/protocol/multi/multi_dialects.hpp"
#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"

#include <string>

namespace rowlock::protocol {
namespace {

/// Names and grant ids, as arrays.
struct entry_arrays {
    explicit entry_arrays(std::span<const granted_name> of) {
        for (const auto& each : of) {
            names.add(each.name);
            ids.add(each.grant_id);
        }
    }
    sql::array_text names{}, ids{};
};

class postgresql_multi_protocol final : public multi_protocol {
public:
    explicit postgresql_multi_protocol(const sql::statement_set& statements)
        : take_{statements("multi_take")},
          enqueue_{statements("multi_enqueue")},
          restore_{statements("multi_restore")} {}

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto rows = send(db, request, until);
        if (lacks_only_rows(rows)) {
            entry_arrays all{request.names};
            run(db, restore_, until, all.names.close());
            rows = send(db, request, until);
        }
        return judge(rows, request);
    }

    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override {
        const auto& first = request.names.front();
        entry_arrays others{request.names.subspan(1)};
        run(db, enqueue_, until, request.session, first.name, first.grant_id, others.names.close(),
            others.ids.close(), sql::text_or_null(request.thread), sql::text_or_null(request.note),
            request.deadline_us, sql::text_or_null(request.blocks), request.names.size());
    }

private:
    [[nodiscard]] sql::result send(sql::connection& db, const multi_request& request,
                                   sql::deadline until) const {
        entry_arrays all{request.names};
        return run(db, take_, until, request.session, all.names.close(), all.ids.close(),
                   sql::text_or_null(request.thread), sql::text_or_null(request.note),
                   request.deadline_us, request.queued ? 1 : 0, request.barging ? 1 : 0);
    }

    /// Whether nothing but the rows of some names is missing.
    static bool lacks_only_rows(const sql::result& rows) {
        bool lacks = false;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const bool present = rows.integer(row, 1) != 0;
            if (present && rows.integer(row, 2) == 0) return false;
            lacks = lacks || !present;
        }
        return lacks && rows.integer(0, 6) != 0;
    }

    static multi_attempt judge(const sql::result& rows, const multi_request& request) {
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
            const auto token = rows.maybe_integer(row, 5);
            if (!token) continue;
            const auto asked =
                std::ranges::find(request.names, rows.text(row, 0), &granted_name::name);
            seen.tokens.at(static_cast<std::size_t>(asked - request.names.begin())) = *token;
            ++granted;
        }
        if (rows.integer(0, 6) == 0) {
            seen.what = attempt::outcome::session_dead;
        } else if (granted == request.names.size()) {
            seen.what = attempt::outcome::granted;
        } else if (could) {
            seen.what = attempt::outcome::contested;
        }
        return seen;
    }

    const sql::statement take_, enqueue_, restore_;
};

}  // namespace

std::unique_ptr<const multi_protocol> make_postgresql_multi(const sql::statement_set& statements) {
    return std::make_unique<const postgresql_multi_protocol>(statements);
}

}  // namespace rowlock::protocol
