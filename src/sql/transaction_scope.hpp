#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <chrono>

namespace rowlock::sql {

/// Ends a transaction that may be open on a connection of our own. Discards the connection if the
/// rollback fails: its next statement would seem to succeed and never be committed.
inline void roll_back(sql::connection& db) noexcept {
    if (!db.alive()) return;
    try {
        // Not the caller's deadline: that may be what ended the transaction.
        db.query("rollback", std::chrono::steady_clock::now() + std::chrono::seconds{1});
    } catch (...) {
        db.discard();
    }
}

/// Begins a transaction that will write. On SQLite it takes the write lock at once, since a read
/// that becomes a write later may fail with BUSY at any time.
inline void begin_to_write(sql::connection& db, sql::deadline until) {
    db.query(db.speaks() == sql::dialect::sqlite ? "begin immediate" : "begin", until);
}

/// A short transaction on a connection of our own: rolled back unless committed.
class transaction_scope {
public:
    transaction_scope(sql::connection& db, sql::deadline until) : db_{db} {
        begin_to_write(db_, until);
    }
    transaction_scope(const transaction_scope&) = delete;
    transaction_scope& operator=(const transaction_scope&) = delete;
    ~transaction_scope() {
        if (!done_) roll_back(db_);
    }

    void commit(sql::deadline until) {
        db_.query("commit", until);
        done_ = true;
    }

private:
    sql::connection& db_;
    bool done_ = false;
};

}  // namespace rowlock::sql
