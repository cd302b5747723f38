#include "lock/client/lease_admin.hpp"

#include "lock/client/request_terms.hpp"
#include "lock/client/validation.hpp"
#include "lock/session/grant.hpp"

namespace rowlock::detail {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

template <typename Read>
auto lease_admin::read(Read what) {
    context_.fork.require_same_process();
    return retries_.on_connection(
        [&](sql::connection& db, sql::deadline until) { return what(db, until); });
}

template <typename Change>
auto lease_admin::change(const lock_name& name, const Change& what) {
    context_.fork.require_same_process();
    return waiting_.look_if_unknown(name.str(), [&] {
        return retries_.change([&](sql::connection& db, sql::deadline until, auto& made) {
            return made([&] { return what(db, until); });
        });
    });
}

bool lease_admin::is_locked(const lock_name& name) {
    return read([&](sql::connection& db, sql::deadline until) {
        return context_.semaphores.holders_of(db, name.str(), until).remaining >= 1ms;
    });
}

std::optional<lease_info> lease_admin::inspect(const lock_name& name) {
    return read([&](sql::connection& db, sql::deadline until) {
        return context_.leases.inspect(db, name.str(), until);
    });
}

std::optional<std::optional<lease_info>> lease_admin::inspect(
    const lock_name& name, std::chrono::steady_clock::time_point until,
    const std::stop_token& stop) {
    context_.fork.require_same_process();
    return retries_.on_connection(retries_.failure_deadline(until), stop,
                                  [&](sql::connection& db, sql::deadline end) {
                                      return context_.leases.inspect(db, name.str(), end);
                                  });
}

bool lease_admin::pause(nanoseconds time, const std::stop_token& stop) {
    const bool go_on = retries_.pause(time, stop);
    if (retries_.closed()) throw client_destroyed();
    return go_on;
}

std::vector<lease_info> lease_admin::list(std::string_view prefix, const page& page) {
    context_.fork.require_same_process();
    validate(prefix, page);
    return read([&](sql::connection& db, sql::deadline until) {
        return context_.leases.list(db, prefix, page, until);
    });
}

std::vector<waiter_info> lease_admin::waiters(const lock_name& name) {
    return read([&](sql::connection& db, sql::deadline until) {
        return context_.leases.queue(db, name.str(), until);
    });
}

std::optional<milliseconds> lease_admin::request_release(const lock_name& name,
                                                         fencing_token holder,
                                                         const request_options& options) {
    validate(options);
    const auto terms = terms_of(context_, options);
    const auto asked = change(name, [&](sql::connection& db, sql::deadline until) {
        auto done =
            context_.leases.request_release(db, name.str(), holder.value(), terms.view(), until);
        if (done) context_.notify_holder(db, done->session, until);
        return done;
    });
    if (!asked) return std::nullopt;
    if (asked->left <= 0us) waiting_.freed(name.str());
    return std::chrono::ceil<milliseconds>(asked->left);
}

bool lease_admin::force_release(const lock_name& name, std::optional<fencing_token> only) {
    protocol::victim whom{.by = name_of(context_)};
    if (only) whom.only = only->value();
    const bool freed = change(name, [&](sql::connection& db, sql::deadline until) {
        const bool done = context_.leases.force_release(db, name.str(), whom, until);
        if (done) context_.notify_holder(db, whom.session, until);
        return done;
    });
    if (freed) waiting_.freed(name.str());
    return freed;
}

}  // namespace rowlock::detail
