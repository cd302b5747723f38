#include "lock/protocol/queue/queue_dialects.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {
namespace {

/// What a file shows outlives every process that reads it. The database wakes no waiter: one
/// without datagrams sees that the file has changed.
class sqlite_queue_protocol final : public two_step_queue_protocol {
public:
    explicit sqlite_queue_protocol(const queue_parts& of)
        : two_step_queue_protocol{of},
          cancel_{of.statements("cancel")},
          delete_entries_of_{of.statements("delete_entries_of")},
          release_unwaited_{of.statements("release_unwaited")} {}

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        std::vector<grant_id> deleted;
        sql::for_each_list(db, cancel_, alone, grant_ids, until, [&](const sql::result& rows) {
            for (const auto grant_id : first_column(rows)) deleted.push_back(grant_id);
        });
        return deleted;
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        run(db, delete_entries_of_, until, session);
        return false;
    }

    release_outcome release(sql::connection& db, std::string_view name, session_id session,
                            grant_id grant_id, bool contended, sql::deadline until) const override {
        if (!contended &&
            run(db, release_unwaited_, until, name, session, grant_id).affected() > 0) {
            return {true, std::nullopt, true};
        }
        auto done = hand_over(db, name, session, grant_id, until);
        if (!done.freed) done.freed = leases_.release(db, name, session, grant_id, until);
        return done;
    }

    std::optional<confirmed_grant> confirm_and_read_next(sql::connection& db, std::string_view name,
                                                         session_id session, grant_id grant_id,
                                                         bool /*durably*/,
                                                         sql::deadline until) const override {
        const auto granted = read_served(db, name, session, grant_id, until);
        if (!granted) return std::nullopt;
        return confirmed_grant{*granted, std::nullopt};
    }

private:
    [[nodiscard]] std::string waking_text(sql::connection& /*db*/, const next_waiter& /*next*/,
                                          session_id /*giver*/) const override {
        return {};
    }

    void wake(sql::connection& /*db*/, const handed_over& /*next*/, std::string_view /*message*/,
              sql::deadline /*until*/) const override {}
    void notify(sql::connection& /*db*/, const wakeup::wake_address& /*to*/,
                std::string_view /*message*/, sql::deadline /*until*/) const override {}

    const sql::statement cancel_, delete_entries_of_, release_unwaited_;
};

}  // namespace

std::unique_ptr<const queue_protocol> make_sqlite_queue(const queue_parts& of) {
    return std::make_unique<const sqlite_queue_protocol>(of);
}

}  // namespace rowlock::protocol
