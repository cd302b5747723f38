#pragma once

#include <rowlock/sql/connection.hpp>

#include <libpq-fe.h>

/// For the drivers that hold a handle of libpq's.
namespace rowlock::postgresql {

/// What libpq knows of the handle's transaction. Sends nothing.
[[nodiscard]] inline sql::transaction_state transaction_of(const PGconn* handle) noexcept {
    switch (PQtransactionStatus(handle)) {
        case PQTRANS_IDLE:
            return sql::transaction_state::none;
        case PQTRANS_INTRANS:
            return sql::transaction_state::open;
        case PQTRANS_INERROR:
            return sql::transaction_state::failed;
        default:  // in the middle of a command, or the connection is gone
            return sql::transaction_state::unknown;
    }
}

}  // namespace rowlock::postgresql
