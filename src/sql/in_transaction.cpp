#include "sql/in_transaction.hpp"

#include "sql/server_facts.hpp"
#include <rowlock/error.hpp>

#include <string>

namespace rowlock::sql {
namespace {

constexpr int no_such_savepoint = 1305;

transaction_state ask_mariadb(connection& db, deadline until) {
    const auto row = db.query("select @@in_transaction, @@autocommit", until);
    const bool open = row.integer(0, 0) != 0 || row.integer(0, 1) == 0;
    return open ? transaction_state::open : transaction_state::none;
}

/// MySQL has no variable for this. A savepoint outside a transaction is gone with its own
/// statement; with autocommit off every statement is in a transaction, this one too.
transaction_state ask_mysql(connection& db, deadline until) {
    db.query("savepoint rowlock_is_there_a_transaction", until);
    try {
        db.query("release savepoint rowlock_is_there_a_transaction", until);
    } catch (const error& failure) {
        if (failure.native_code() != no_such_savepoint) throw;
        return transaction_state::none;
    }
    return transaction_state::open;
}

/// For a driver that does not report its state; ours all do.
transaction_state ask_postgresql(connection& db, deadline until) {
    try {
        db.query("savepoint rowlock_is_there_a_transaction", until);
    } catch (const error& failure) {
        if (failure.sqlstate() == "25P01") return transaction_state::none;
        if (failure.sqlstate() == "25P02") return transaction_state::failed;
        throw;
    }
    db.query("release savepoint rowlock_is_there_a_transaction", until);
    return transaction_state::open;
}

}  // namespace

transaction_state transaction_of(connection& db, deadline until) {
    const auto known = db.transaction();
    if (known != transaction_state::unknown) return known;
    if (!db.alive()) throw error{errc::database_unreachable, "this connection broke before"};
    switch (db.speaks()) {
        case dialect::postgresql:
            return ask_postgresql(db, until);
        case dialect::mysql:
            return facts_of(db, until).mariadb ? ask_mariadb(db, until) : ask_mysql(db, until);
        case dialect::sqlite:
            break;
    }
    throw error{errc::invalid_options,
                "this connection does not report whether it is in a transaction: use a "
                "connection_ref"};
}

void require_transaction(connection& db, std::string_view what, deadline until) {
    const auto found = transaction_of(db, until);
    if (found == transaction_state::open) return;
    if (found == transaction_state::failed) {
        throw error{errc::invalid_options,
                    "the transaction has failed and takes no more statements: roll it back; " +
                        std::string{what} + " sent nothing"};
    }
    throw error{errc::invalid_options, std::string{what} +
                                           " needs an open transaction, or its lock would be gone "
                                           "with its own statement: begin one first"};
}

}  // namespace rowlock::sql
