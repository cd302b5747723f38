#pragma once

#include "sql/transaction_scope.hpp"
#include <rowlock/sql/connection.hpp>

#include <span>

namespace rowlock::sql {

/// Runs statements that change one row each as one transaction. Returns false, and changes nothing,
/// if one of them changes none.
inline bool run_all(connection& db, std::span<const step> steps, deadline until) {
    if (const auto committed = db.transact(steps, {}, until)) return *committed;
    transaction_scope transaction{db, until};
    for (const auto& each : steps) {
        if (db.execute(each.what, each.parameters, until).affected() != 1) return false;
    }
    transaction.commit(until);
    return true;
}

}  // namespace rowlock::sql
