#include "lock/client/policies.hpp"

#include "lock/client/validation.hpp"

namespace rowlock::detail {

using std::chrono::milliseconds;

void policies::set_max_hold(const lock_name& name, std::optional<milliseconds> limit) {
    context_.fork.require_same_process();
    validate_max_hold(limit);
    retries_.change([&](sql::connection& db, sql::deadline until, auto& change) {
        return change([&] {
            protocol_.set_max_hold(db, name.str(), limit, until);
            return true;
        });
    });
}

std::optional<milliseconds> policies::max_hold(const lock_name& name) {
    context_.fork.require_same_process();
    const auto found = retries_.on_connection([&](sql::connection& db, sql::deadline until) {
        return protocol_.max_hold(db, name.str(), until);
    });
    if (!found) return std::nullopt;
    return std::chrono::ceil<milliseconds>(*found);
}

}  // namespace rowlock::detail
