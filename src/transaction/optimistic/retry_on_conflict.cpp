#include "sql/in_transaction.hpp"
#include "sql/transaction_scope.hpp"
#include <rowlock/optimistic.hpp>

namespace rowlock::detail {
namespace {

sql::deadline from_now(std::chrono::milliseconds time) {
    return std::chrono::steady_clock::now() + time;
}

}  // namespace

error conflict_error() {
    return {errc::conflict,
            "the row was changed or deleted since it was read: read it again, and start over"};
}

bool retry_until_no_conflict::cut_off() const noexcept {
    return db_ != nullptr && (!db_->alive() || db_->discarded());
}

retry_step retry_until_no_conflict::judge(const error& failure) const noexcept {
    return cut_off() ? retry_step::give_up : retry_until_stopped::judge(failure);
}

void retry_until_no_conflict::give_up(const error& last, int attempts_made) const {
    if (cut_off() || last.kind() != errc::conflict) throw;
    throw error{
        errc::conflict,
        std::string{last.what()} + " (attempts made: " + std::to_string(attempts_made) + ")",
        {last.sqlstate(), last.native_code(), last.server_message()}};
}

attempt_transaction::attempt_transaction(sql::connection& db,
                                         std::chrono::milliseconds statement_timeout)
    : db_{db}, statement_timeout_{statement_timeout} {
    if (statement_timeout <= std::chrono::milliseconds{0} ||
        statement_timeout > std::chrono::minutes{1}) {
        throw error{errc::invalid_options,
                    "statement_timeout must be positive and at most one minute"};
    }
    const auto state = sql::transaction_of(db_, from_now(statement_timeout));
    if (state != sql::transaction_state::none) {
        throw error{errc::invalid_options,
                    "this connection is in a transaction, or has autocommit switched off: end it, "
                    "or switch it on, first; or call the retry_on_conflict() without a connection "
                    "around the whole of it"};
    }
    sql::begin_to_write(db_, from_now(statement_timeout));
}

attempt_transaction::~attempt_transaction() {
    roll_back();
}

void attempt_transaction::commit() {
    const auto state = sql::transaction_of(db_, from_now(statement_timeout_));
    if (state == sql::transaction_state::failed) {
        // COMMIT would roll back silently.
        throw error{errc::database_error,
                    "a statement of this transaction failed and its error was swallowed: let it "
                    "reach retry_on_conflict(); nothing was committed"};
    }
    if (state == sql::transaction_state::none) {
        // The action ended it, or MySQL rolled back a deadlock victim and went on without a
        // transaction.
        over_ = true;
        throw error{errc::database_error,
                    "the transaction of this attempt has ended before its commit: leave commit and "
                    "rollback to retry_on_conflict(), and let errors reach it"};
    }
    db_.query("commit", from_now(statement_timeout_));
    over_ = true;
}

void attempt_transaction::roll_back() noexcept {
    if (over_ || !db_.alive()) return;
    over_ = true;
    // The database may have ended it: a deadlock victim, or a refused commit.
    if (db_.transaction() == sql::transaction_state::none) return;
    try {
        // Not the caller's deadline: that may be what ended the attempt.
        db_.query("rollback", from_now(std::chrono::seconds{1}));
    } catch (...) {
        db_.discard();
    }
}

}  // namespace rowlock::detail
