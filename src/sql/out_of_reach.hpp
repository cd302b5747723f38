#pragma once

#include <rowlock/error.hpp>

namespace rowlock::sql {

/// Runs an action on tables that a role need not have rights on. Returns false if it has none: the
/// work is left to roles that have them.
template <typename Action>
bool unless_out_of_reach(Action action) {
    try {
        action();
        return true;
    } catch (const error& failure) {
        if (failure.kind() != errc::access_denied) throw;
        return false;
    }
}

}  // namespace rowlock::sql
