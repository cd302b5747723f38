#include "lock/client/semaphore_admin.hpp"

#include "base/page.hpp"
#include "base/require.hpp"
#include "lock/client/request_terms.hpp"
#include "lock/client/validation.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rowlock::detail {

template <typename Call>
auto semaphore_admin::on_connection(Call call) {
    context_.fork.require_same_process();
    return retries_.on_connection(
        [&](sql::connection& db, sql::deadline until) { return call(db, until); });
}

template <typename Attempt>
auto semaphore_admin::change(const lock_name& name, const Attempt& attempt) {
    context_.fork.require_same_process();
    return waiting_.look_if_unknown(name.str(), [&] { return retries_.change(attempt); });
}

/// Waiters that fit now are served in a commit of its own; if that fails, the loop does it.
void semaphore_admin::set_capacity(const lock_name& name, std::int64_t permits) {
    change(name, [&](sql::connection& db, sql::deadline until, auto& made) {
        made([&] { context_.semaphores.set_capacity(db, name.str(), permits, until); });
        try {
            waiting_.serve(db, name.str(), protocol::queue_head::counted, until);
        } catch (const error&) {
            waiting_.freed(name.str());
        }
        return true;
    });
}

bool semaphore_admin::create(const lock_name& name, std::int64_t permits) {
    return change(name, [&](sql::connection& db, sql::deadline until, auto& made) {
        const bool created =
            made([&] { return context_.semaphores.create(db, name.str(), permits, until); });
        // The attempt before may have made it: then it is there now, and was not found.
        return created || made.possible();
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

std::vector<protocol::held_permits> semaphore_admin::holders(const lock_name& name, int limit) {
    require(limit >= 1 && limit <= 10'000, "the limit of holders must be from 1 to 10000");
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.holders(db, name.str(), limit, until);
    });
}

std::vector<permit_waiter> semaphore_admin::waiters(const lock_name& name) {
    return on_connection([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.queue(db, name.str(), until);
    });
}

std::optional<std::chrono::milliseconds> semaphore_admin::request_release(
    const lock_name& name, fencing_token holder, const request_options& options) {
    validate(options);
    const auto terms = terms_of(context_, options);
    return change(name,
                  [&](sql::connection& db, sql::deadline until,
                      auto& made) -> std::optional<std::chrono::milliseconds> {
                      const auto asked = made([&] {
                          return context_.semaphores.request_release(db, name.str(), holder.value(),
                                                                     terms.view(), until);
                      });
                      if (!asked) return std::nullopt;
                      context_.notify_holder(db, asked->session, until);
                      if (asked->left.count() <= 0) take_back(db, name, until);
                      return std::max(std::chrono::ceil<std::chrono::milliseconds>(asked->left),
                                      std::chrono::milliseconds{0});
                  });
}

bool semaphore_admin::force_release(const lock_name& name, fencing_token holder) {
    std::optional<protocol::hold_id> whom;
    return change(name, [&](sql::connection& db, sql::deadline until, auto& made) {
        const bool done = made([&] {
            return context_.semaphores.force_release(db, name.str(), holder.value(),
                                                     name_of(context_), whom, until);
        });
        if (!done) return false;
        context_.notify_holder(db, whom->session, until);
        take_back(db, name, until);
        return true;
    });
}

/// Permits of a hold that is over. If it fails, the first waiter takes them back with its poll, or
/// the reaper does.
void semaphore_admin::take_back(sql::connection& db, const lock_name& name,
                                sql::deadline until) noexcept {
    try {
        context_.semaphores.sweep(db, name.str(), until);
        waiting_.serve(db, name.str(), protocol::queue_head::counted, until);
    } catch (const std::exception&) {
        waiting_.freed(name.str());
    }
}

}  // namespace rowlock::detail
