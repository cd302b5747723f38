#include "coordination/lease/semaphore_admin.hpp"

#include "base/page.hpp"
#include "base/require.hpp"
#include <rowlock/error.hpp>

namespace rowlock::detail {

template <typename Call>
auto semaphore_admin::on_connection(Call call) {
    context_.fork.require_same_process();
    return retries_.on_connection(
        [&](sql::connection& db, sql::deadline until) { return call(db, until); });
}

/// Waiters that fit now are served in a commit of its own; if that fails, the loop does it.
void semaphore_admin::set_capacity(const lock_name& name, std::int64_t permits) {
    on_connection([&](sql::connection& db, sql::deadline until) {
        context_.semaphores.set_capacity(db, name.str(), permits, until);
        try {
            waiting_.serve_permits(db, name.str(), until);
        } catch (const error&) {
            waiting_.permits_freed(name.str());
        }
        return true;
    });
}

bool semaphore_admin::create(const lock_name& name, std::int64_t permits) {
    bool unknown = false;
    return on_connection([&](sql::connection& db, sql::deadline until) {
        try {
            return context_.semaphores.create(db, name.str(), permits, until) || unknown;
        } catch (const error& failure) {
            // The attempt before may have made it: then it is there now, and was not found.
            unknown = unknown || failure.kind() == errc::outcome_unknown;
            throw;
        }
    });
}

bool semaphore_admin::exists(const lock_name& name, protocol::counter_kind kind) {
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.exists(db, name.str(), kind, until);
    });
}

std::optional<semaphore_info> semaphore_admin::inspect(const lock_name& name,
                                                       protocol::counter_kind kind) {
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.inspect(db, name.str(), kind, until);
    });
}

std::vector<semaphore_info> semaphore_admin::list(std::string_view prefix,
                                                  protocol::counter_kind kind, const page& page) {
    context_.fork.require_same_process();
    validate(prefix, page);
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.list(db, prefix, kind, page, until);
    });
}

std::vector<permit_holder> semaphore_admin::holders(const lock_name& name, int limit) {
    require(limit >= 1 && limit <= 10'000, "the limit of holders must be from 1 to 10000");
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.holders(db, name.str(), limit, until);
    });
}

}  // namespace rowlock::detail
