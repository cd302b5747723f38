#include "lock/protocol/hold/request_arrays.hpp"
#include "lock/protocol/hold/tickets.hpp"
#include "lock/protocol/semaphore/flush_commits.hpp"
#include "lock/protocol/semaphore/semaphore_dialects.hpp"
#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace rowlock::protocol {
namespace {

/// One statement for each transition. They commit asynchronously, so that the counter's row is
/// locked for microseconds, and a flush on the same connection follows before a client learns of a
/// grant.
class postgresql_semaphore_protocol final : public semaphore_protocol {
public:
    explicit postgresql_semaphore_protocol(const sql::statement_set& statements)
        : semaphore_protocol{statements},
          take_{statements("take_permits")},
          take_together_{statements("take_permits_together")},
          flush_{statements("flush_commits")},
          flush_taken_{statements("flush_taken_permits")},
          give_{statements("give_permits")},
          give_together_{statements("give_permits_together")},
          shrink_{statements("shrink_permits")},
          lower_{statements("lower_lock")},
          end_upgrade_{statements("end_upgrade")},
          sweep_{statements("sweep_permits")} {}

    /// What this reads is committed; the flush makes it durable, if the server did not crash in
    /// between, which breaks the connection, but not one to a pooler.
    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        auto found = read(db, name, session, grant_id, until);
        if (!found) return std::nullopt;
        flush(db, until);
        if (!db.keeps_session_state()) found = read(db, name, session, grant_id, until);
        return found ? std::optional{found->granted} : std::nullopt;
    }

    std::vector<bool> release_together(sql::connection& db, std::string_view name,
                                       session_id session, std::span<const own_hold> holds,
                                       sql::deadline until) const override {
        std::vector<bool> ended(holds.size());
        if (holds.empty()) return ended;
        sql::array_text ids;
        for (const auto& each : holds) ids.add(each.grant_id);
        const auto rows = sql::run(db, give_together_, until, name, session, ids.close(),
                                   db.keeps_session_state() ? 1 : 0);
        for (const auto id : first_column(rows)) {
            const auto at = std::ranges::find(holds, id, &own_hold::grant_id);
            if (at != holds.end()) ended[static_cast<std::size_t>(at - holds.begin())] = true;
        }
        return ended;
    }

    bool end_upgrade(sql::connection& db, std::string_view name, grant_id upgrade,
                     std::optional<std::int64_t> to, sql::deadline until) const override {
        return sql::run(db, end_upgrade_, until, name, upgrade, to).integer(0, 0) == 1;
    }

private:
    std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                     sql::deadline until) const override {
        const std::array parameters{sql::value{request.name},
                                    sql::value{request.session},
                                    sql::value{request.grant_id},
                                    sql::value{request.permits.count},
                                    sql::text_or_null(request.thread),
                                    sql::text_or_null(request.note),
                                    sql::value{request.deadline_us},
                                    sql::value{db.keeps_session_state() ? 1 : 0},
                                    sql::value{static_cast<int>(request.permits.of)}};
        sql::array_text ids;
        ids.add(request.grant_id);
        const auto taken = take_durably(db, take_, parameters, request, ids.close(), until);
        if (taken.empty()) return std::nullopt;
        return taken.front().token;
    }

    std::vector<std::int64_t> take_together(sql::connection& db,
                                            std::span<const grant_request> requests,
                                            sql::deadline until) const override {
        const auto& first = requests.front();
        request_arrays all{requests};
        sql::array_text permits;
        for (const auto& each : requests) permits.add(each.permits.count);
        const auto& ids = all.ids.close();
        const std::array parameters{sql::value{first.name},
                                    sql::value{first.session},
                                    sql::value{db.keeps_session_state() ? 1 : 0},
                                    sql::value{static_cast<int>(first.permits.of)},
                                    sql::value{ids},
                                    sql::value{permits.close()},
                                    sql::value{all.threads.close()},
                                    sql::value{all.notes.close()},
                                    sql::value{all.deadlines.close()}};
        const auto taken = take_durably(db, take_together_, parameters, first, ids, until);
        std::vector<std::int64_t> tokens(taken.size());
        for (const auto& [grant_id, token] : taken) {
            const auto at = std::ranges::find(requests, grant_id, &grant_request::grant_id);
            tokens.at(static_cast<std::size_t>(at - requests.begin())) = token;
        }
        return tokens;
    }

    struct taken_permits {
        rowlock::grant_id grant_id;
        std::int64_t token;
    };
    static std::vector<taken_permits> read_taken(const sql::result& rows) {
        std::vector<taken_permits> taken;
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            taken.push_back({rows.integer<grant_id>(row, 0), rows.integer(row, 1)});
        }
        return taken;
    }

    /// What the statement takes, on disk.
    /// @param one of the requests  @param ids of all, as an array's text
    std::vector<taken_permits> take_durably(sql::connection& db, const sql::statement& how,
                                            std::span<const sql::value> parameters,
                                            const grant_request& one, std::string_view ids,
                                            sql::deadline until) const {
        const bool asynchronously = db.keeps_session_state();
        if (asynchronously) {
            if (auto taken = take_and_flush(db, how, parameters, one, ids, until)) return *taken;
        }
        auto taken = read_taken(db.execute(how, parameters, until));
        if (asynchronously && !taken.empty()) flush(db, until);
        return taken;
    }

    /// The answer to a take that was posted.
    struct posted_take {
        bool answered = false;
        std::vector<taken_permits> taken{};
        std::optional<error> failure{};
    };

    /// Both in one round trip. Returns nullopt, and has done nothing, where that is impossible, or
    /// where execute() does more about a failure: it prepares a statement anew that the server does
    /// not know any more, and leaves a server that has become read-only.
    std::optional<std::vector<taken_permits>> take_and_flush(
        sql::connection& db, const sql::statement& how, std::span<const sql::value> parameters,
        const grant_request& one, std::string_view ids, sql::deadline until) const {
        // Shared with the connection, which may read the answer in a later call.
        const auto posted = std::make_shared<posted_take>();
        const auto read = [posted](const sql::result* rows, const error* failure) {
            posted->answered = true;
            if (failure != nullptr) posted->failure = *failure;
            if (rows != nullptr) posted->taken = read_taken(*rows);
        };
        if (!db.post(how, parameters, until, read)) return std::nullopt;
        bool flushed = false;
        std::optional<error> not_flushed;
        try {
            flushed = !sql::run(db, flush_taken_, until, one.name, one.session, ids).empty();
        } catch (const error& failure) {
            not_flushed = failure;
        }
        if (const auto& failure = posted->failure) {
            const auto kind = failure->kind();
            const bool refused = kind != errc::outcome_unknown && !failure->retryable();
            if (!not_flushed && (refused || kind == errc::read_only)) return std::nullopt;
            throw error{*failure};
        }
        if (not_flushed) {
            if (!posted->answered || !posted->taken.empty()) throw unflushed(*not_flushed);
            throw error{*not_flushed};
        }
        // Only if all of them were over already.
        if (!flushed && !posted->taken.empty()) flush(db, until);
        return std::move(posted->taken);
    }

    bool give(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
              std::int64_t /*permits*/, sql::deadline until) const override {
        const int asynchronously = db.keeps_session_state() ? 1 : 0;
        return sql::run(db, give_, until, name, session, grant_id, asynchronously).integer(0, 0) ==
               1;
    }

    bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                    grant_id grant_id, const found_hold& read, std::int64_t to,
                    sql::deadline until) const override {
        return sql::run(db, shrink_, until, name, session, grant_id, read.permits, to,
                        read.granted.token)
                   .integer(0, 0) == 1;
    }

    bool lower_now(sql::connection& db, std::string_view name, session_id session,
                   grant_id grant_id, std::int64_t to, sql::deadline until) const override {
        return sql::run(db, lower_, until, name, session, grant_id, to).integer(0, 0) == 1;
    }

    void flush(sql::connection& db, sql::deadline until) const { flush_commits(db, flush_, until); }

    std::int64_t sweep_some(sql::connection& db, std::string_view name,
                            sql::deadline until) const override {
        return sql::run(db, sweep_, until, name).integer(0, 1);
    }

    const sql::statement take_, take_together_, flush_, flush_taken_, give_, give_together_,
        shrink_, lower_, end_upgrade_, sweep_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_postgresql_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const postgresql_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
