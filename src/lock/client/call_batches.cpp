#include "lock/client/call_batches.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Longest wait for a shared call to begin; after that a thread makes its own.
constexpr auto patience = 20ms;
/// Concurrent batches per operation. One at a time forms larger batches and does more.
constexpr std::size_t calls_at_once = 1;
/// Of parts. Names that share one by chance are not sent together.
constexpr std::size_t lanes = 16;

/// A thread that has a connection of its own gains nothing by waiting for others, unless there are
/// many of them; or the file has one writer, for which a batch saves commits.
std::size_t few_of(const client_context& context) {
    constexpr int most = 4;
    if (context.shares_connection() || context.traits().one_writer) return 1;
    return static_cast<std::size_t>(std::min(context.options.max_connections, most));
}

/// The items that one statement can serve with the first. The others are left out: each is sent
/// alone.
template <typename Item, typename Alike>
std::vector<Item*> like_the_first(std::span<Item* const> asked, Alike alike) {
    for (Item* each : asked) each->left_out = !alike(*each, *asked.front());
    std::vector<Item*> chosen;
    std::ranges::copy_if(asked, std::back_inserter(chosen),
                         [](const Item* each) { return !each->left_out; });
    return chosen;
}

}  // namespace

call_batches::lane::lane(std::size_t most, acquires::sender take, releases::sender give,
                         std::size_t few, bool one_by_one)
    : taking{calls_at_once, most, std::move(take), few},
      giving{calls_at_once, most, std::move(give), few},
      contended_alone{one_by_one} {}

call_batches::call_batches(client_context& context, client_connections& connections,
                           waiters& waiting)
    : context_{context},
      connections_{connections},
      waiting_{waiting},
      protocol_{protocol::make_batch_protocol(context.statements, context.leases)},
      whole_{protocol::batch_protocol::most, [this](auto asked) { acquire_whole(asked); },
             [this](auto asked) { release_whole(asked); }, few_of(context), true},
      probes_{calls_at_once, protocol::batch_protocol::most,
              [this](auto asked) { send_probes(asked); }, few_of(context)} {
    for (std::size_t i = 0; i < lanes; ++i) {
        parts_.emplace_back(
            protocol::semaphore_protocol::most_together,
            [this](auto asked) { acquire_parts(asked); },
            [this](auto asked) { release_parts(asked); }, 1, false);
    }
}

call_batches::lane& call_batches::lane_of(bool part, std::string_view name) {
    return part ? parts_[std::hash<std::string_view>{}(name) % lanes] : whole_;
}

/// A request for more than any semaphore has is a mistake, as one for none, and its sum with others
/// might overflow.
std::optional<protocol::attempt> call_batches::acquire(const protocol::grant_request& request,
                                                       std::optional<std::int64_t> known,
                                                       sql::deadline until) {
    const auto count = request.permits.count;
    if (count < 0 || count > protocol::largest_capacity) return std::nullopt;
    return lane_of(request.permits.is_part(), request.name)
        .taking.submit({request, known, until}, patience);
}

bool call_batches::is_held(const std::string& name, sql::deadline until) {
    return probes_.submit({name, until}, patience).value_or(false);
}

std::optional<protocol::release_outcome> call_batches::release(const protocol::hold_key& which,
                                                               protocol::release_hint hint,
                                                               sql::deadline until) {
    auto& its = lane_of(which.part, which.name);
    if (hint.contended && its.contended_alone) return std::nullopt;
    return its.giving.submit({which, hint.permits, until}, patience);
}

void call_batches::acquire_whole(std::span<acquires::item* const> asked) {
    const auto& first = asked.front()->call;
    const auto db = connections_.take(first.until);
    if (asked.size() == 1) return acquire_one(*db, *asked.front());
    std::vector<acquires::item*> chosen;
    for (auto* each : asked) {
        // Of two requests for one name the second asks again. So does a request from a session that
        // was opened since.
        const auto& wanted = each->call.request;
        const bool twice = std::ranges::any_of(
            chosen, [&](const auto* it) { return it->call.request.name == wanted.name; });
        if (!twice && wanted.session == first.request.session) chosen.push_back(each);
    }
    const auto unknown = std::partition(chosen.begin(), chosen.end(), [](const auto* each) {
        return each->call.known.has_value();
    });
    const auto known = static_cast<std::size_t>(unknown - chosen.begin());
    const std::span<acquires::item* const> all{chosen};
    // One known token alone makes no batch.
    const bool apart = protocol_->reacquires_apart() && known > 1;
    const std::size_t retaken = apart ? known : 0;
    grant_all(*db, all.first(retaken), true, first.until);
    grant_all(*db, all.subspan(retaken), false, first.until);
}

void call_batches::acquire_one(sql::connection& db, acquires::item& asked) {
    const auto& [request, known, until] = asked.call;
    if (known && protocol_->reacquire(db, request, *known, until)) {
        asked.answer = {protocol::attempt::outcome::granted, *known + 1, {}};
    } else {
        asked.answer = context_.leases.acquire(db, request, until);
    }
}

void call_batches::grant_all(sql::connection& db, std::span<acquires::item* const> asked,
                             bool known, sql::deadline until) {
    if (asked.empty()) return;
    std::vector<protocol::grant_request> requests;
    std::vector<std::int64_t> freed_with;
    for (const auto* each : asked) {
        requests.push_back(each->call.request);
        if (known) freed_with.push_back(*each->call.known);
    }
    const auto tokens = known ? protocol_->reacquire_all(db, requests, freed_with, until)
                              : protocol_->acquire_all(db, requests, until);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        if (!tokens[i]) continue;
        asked[i]->answer = {protocol::attempt::outcome::granted, *tokens[i], {}};
    }
}

void call_batches::send_probes(std::span<probes::item* const> asked) {
    const auto until = asked.front()->call.until;
    std::vector<std::string_view> names;
    for (const auto* each : asked) names.push_back(each->call.name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    const auto db = connections_.take(until);
    const auto held = protocol_->held(*db, names, until);
    for (auto* each : asked) {
        const auto at = std::ranges::lower_bound(names, each->call.name) - names.begin();
        each->answer = held[static_cast<std::size_t>(at)];
    }
}

void call_batches::release_whole(std::span<releases::item* const> asked) {
    const auto& first = asked.front()->call;
    const auto db = connections_.take(first.until);
    if (asked.size() == 1) return release_one(*db, *asked.front());
    std::vector<releases::item*> chosen;
    std::vector<protocol::granted_name> grants;
    const auto session = first.which.session;
    for (auto* each : asked) {
        const auto& which = each->call.which;
        if (which.session != session) continue;
        chosen.push_back(each);
        grants.push_back({which.name, which.grant_id});
    }
    const auto freed = protocol_->release_all(*db, session, grants, first.until);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (!freed[i]) continue;
        chosen[i]->answer = protocol::release_outcome{
            .freed = true, .next = {}, .unwaited = context_.traits().one_writer};
    }
}

std::vector<bool> call_batches::release_all(session_id session,
                                            std::span<const protocol::granted_name> grants,
                                            sql::deadline until) {
    const auto db = connections_.take(until);
    return protocol_->release_all(*db, session, grants, until);
}

void call_batches::release_one(sql::connection& db, releases::item& asked) {
    const auto& [which, permits, until] = asked.call;
    auto done =
        context_.queues.release(db, which.name, which.session, which.grant_id, false, until);
    if (done.next || done.counted_waits) {
        waiting_.after_release(db, std::string{which.name}, done, until);
    }
    asked.answer = done;
}

void call_batches::acquire_parts(std::span<acquires::item* const> asked) {
    const auto& first = asked.front()->call;
    const auto alike =
        like_the_first(asked, [](const acquires::item& one, const acquires::item& other) {
            const auto& left = one.call.request;
            const auto& right = other.call.request;
            return left.name == right.name && left.session == right.session &&
                   left.permits.of == right.permits.of;
        });
    const auto db = connections_.take(first.until);
    // Here a caller's mistake is an error, which would reach the other threads of a batch.
    if (asked.size() == 1) {
        asked.front()->answer = context_.semaphores.acquire(*db, first.request, first.until);
        return;
    }
    std::vector<protocol::grant_request> requests;
    for (const auto* each : alike) requests.push_back(each->call.request);
    const auto found = context_.semaphores.acquire_together(*db, requests, first.until);
    for (std::size_t i = 0; i < alike.size(); ++i) alike[i]->answer = found[i];
}

void call_batches::release_parts(std::span<releases::item* const> asked) {
    const auto& [which, permits, until] = asked.front()->call;
    const auto alike =
        like_the_first(asked, [](const releases::item& one, const releases::item& other) {
            return one.call.which.name == other.call.which.name &&
                   one.call.which.session == other.call.which.session;
        });
    const auto db = connections_.take(until);
    std::vector<bool> ended;
    if (alike.size() == 1) {
        ended = {context_.semaphores.release(*db, which.name, which.session, which.grant_id,
                                             permits, until)};
    } else {
        std::vector<protocol::own_hold> holds;
        for (const auto* each : alike) {
            holds.push_back({each->call.which.grant_id, each->call.permits});
        }
        ended = context_.semaphores.release_together(*db, which.name, which.session, holds, until);
    }
    const protocol::release_outcome freed{.freed = true, .next = {}, .part = true};
    bool any = false;
    for (std::size_t i = 0; i < alike.size(); ++i) {
        if (!ended[i]) continue;
        alike[i]->answer = freed;
        any = true;
    }
    if (any) waiting_.after_release(*db, std::string{which.name}, freed, until);
}

}  // namespace rowlock::detail
