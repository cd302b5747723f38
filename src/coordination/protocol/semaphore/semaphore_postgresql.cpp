#include "coordination/protocol/hold/tickets.hpp"
#include "coordination/protocol/semaphore/semaphore_dialects.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

namespace rowlock::protocol {
namespace {

/// One statement for each transition. They commit asynchronously, so that the counter's row is
/// locked for microseconds, and a flush on the same connection follows before a client learns of a
/// grant.
class postgresql_semaphore_protocol final : public common_semaphore_protocol {
public:
    explicit postgresql_semaphore_protocol(const sql::statement_set& statements)
        : common_semaphore_protocol{statements},
          take_{statements("take_permits")},
          flush_{statements("flush_commits")},
          give_{statements("give_permits")},
          shrink_{statements("shrink_permits")},
          grant_{statements("grant_permits")},
          sweep_{statements("sweep_permits")},
          cancel_{statements("cancel_permit_entries")},
          delete_entries_of_{statements("delete_permit_entries_of")},
          reap_waiters_{statements("reap_permit_waiters")} {}

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        if (grant_ids.empty()) return {};
        return first_column(sql::run(db, cancel_, until, array_of(grant_ids)));
    }

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

    granted_permits grant_next(sql::connection& db, std::string_view name,
                               sql::deadline until) const override {
        constexpr std::size_t at_once = 256;
        const auto rows = sql::run(db, grant_, until, name);
        granted_permits granted{.served = {}, .more = rows.rows() == at_once};
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            granted.served.push_back({.session = rows.integer<session_id>(row, 0),
                                      .grant_id = rows.integer<grant_id>(row, 1),
                                      .token = rows.integer(row, 2),
                                      .to = {.number = rows.integer(row, 3),
                                             .secret = std::string{rows.text(row, 4)},
                                             .mailbox = rows.maybe_integer(row, 5)}});
        }
        return granted;
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        sql::run(db, delete_entries_of_, until, session);
        return false;
    }

    std::int64_t remove_dead_entries(sql::connection& db, std::int64_t batch,
                                     sql::deadline until) const override {
        return sql::run(db, reap_waiters_, until, batch).affected();
    }

private:
    std::optional<std::int64_t> take(sql::connection& db, const grant_request& request,
                                     sql::deadline until) const override {
        const bool asynchronously = db.keeps_session_state();
        const auto row =
            sql::run(db, take_, until, request.name, request.session, request.grant_id,
                     request.permits.count, sql::text_or_null(request.thread),
                     sql::text_or_null(request.note), request.deadline_us, asynchronously ? 1 : 0,
                     static_cast<int>(request.permits.of), base_of(request));
        if (row.empty()) return std::nullopt;
        if (asynchronously) flush(db, until);
        return row.integer(0, 0);
    }

    bool give(sql::connection& db, std::string_view name, session_id session, grant_id grant_id,
              sql::deadline until) const override {
        const int asynchronously = db.keeps_session_state() ? 1 : 0;
        return sql::run(db, give_, until, name, session, grant_id, asynchronously).integer(0, 0) ==
               1;
    }

    bool shrink_now(sql::connection& db, std::string_view name, session_id session,
                    grant_id grant_id, std::int64_t from, std::int64_t to,
                    sql::deadline until) const override {
        return sql::run(db, shrink_, until, name, session, grant_id, from, to).integer(0, 0) == 1;
    }

    /// The statement before it has taken effect: a failure says nothing else.
    void flush(sql::connection& db, sql::deadline until) const {
        try {
            sql::run(db, flush_, until);
        } catch (const error& failure) {
            throw error{errc::outcome_unknown,
                        std::string{"committed, but not known to be on disk: "} + failure.what()};
        }
    }

    std::int64_t sweep_some(sql::connection& db, std::string_view name,
                            sql::deadline until) const override {
        return sql::run(db, sweep_, until, name).integer(0, 1);
    }

    const sql::statement take_, flush_, give_, shrink_, grant_, sweep_, cancel_, delete_entries_of_,
        reap_waiters_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_postgresql_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const postgresql_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
