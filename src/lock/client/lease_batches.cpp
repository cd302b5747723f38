#include "lock/client/lease_batches.hpp"

#include <rowlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Longest wait for a shared call to begin; after that a thread makes its own.
constexpr auto patience = 20ms;
/// Concurrent batches per operation. One at a time forms larger batches and does more.
constexpr std::size_t calls_at_once = 1;

/// A thread that has a connection of its own gains nothing by waiting for others, unless there are
/// many of them; or the file has one writer, for which a batch saves commits.
std::size_t few_of(const client_context& context) {
    constexpr int most = 4;
    if (context.shares_connection() || context.traits().one_writer) return 1;
    return static_cast<std::size_t>(std::min(context.options.max_connections, most));
}

}  // namespace

lease_batches::lease_batches(client_context& context, client_connections& connections,
                             waiters& waiting)
    : context_{context},
      connections_{connections},
      waiting_{waiting},
      protocol_{protocol::make_batch_protocol(context.statements, context.leases)},
      acquires_{calls_at_once, protocol::batch_protocol::most,
                [this](auto asked) { send_acquires(asked); }, few_of(context)},
      releases_{calls_at_once, protocol::batch_protocol::most,
                [this](auto asked) { send_releases(asked); }, few_of(context)},
      probes_{calls_at_once, protocol::batch_protocol::most,
              [this](auto asked) { send_probes(asked); }, few_of(context)} {}

std::optional<protocol::attempt> lease_batches::acquire(const protocol::grant_request& request,
                                                        std::optional<std::int64_t> known,
                                                        sql::deadline until) {
    return acquires_.submit({request, known, until}, patience);
}

bool lease_batches::is_held(const std::string& name, sql::deadline until) {
    return probes_.submit({name, until}, patience).value_or(false);
}

std::optional<protocol::release_outcome> lease_batches::release(
    session_id session, const protocol::granted_name& granted, sql::deadline until) {
    return releases_.submit({session, granted, until}, patience);
}

void lease_batches::send_acquires(std::span<acquires::item* const> asked) {
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

void lease_batches::acquire_one(sql::connection& db, acquires::item& asked) {
    const auto& [request, known, until] = asked.call;
    if (known && protocol_->reacquire(db, request, *known, until)) {
        asked.answer = {protocol::attempt::outcome::granted, *known + 1, {}};
    } else {
        asked.answer = context_.leases.acquire(db, request, until);
    }
}

void lease_batches::grant_all(sql::connection& db, std::span<acquires::item* const> asked,
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

void lease_batches::send_probes(std::span<probes::item* const> asked) {
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

void lease_batches::send_releases(std::span<releases::item* const> asked) {
    const auto& first = asked.front()->call;
    const auto db = connections_.take(first.until);
    if (asked.size() == 1) return release_one(*db, *asked.front());
    std::vector<releases::item*> chosen;
    std::vector<protocol::granted_name> grants;
    for (auto* each : asked) {
        if (each->call.session != first.session) continue;
        chosen.push_back(each);
        grants.push_back(each->call.granted);
    }
    const auto freed = protocol_->release_all(*db, first.session, grants, first.until);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (!freed[i]) continue;
        chosen[i]->answer = protocol::release_outcome{
            .freed = true, .next = {}, .unwaited = context_.traits().one_writer};
    }
}

std::vector<bool> lease_batches::release_all(session_id session,
                                             std::span<const protocol::granted_name> grants,
                                             sql::deadline until) {
    const auto db = connections_.take(until);
    return protocol_->release_all(*db, session, grants, until);
}

void lease_batches::release_one(sql::connection& db, releases::item& asked) {
    const auto& [session, granted, until] = asked.call;
    auto done = context_.queues.release(db, granted.name, session, granted.grant_id, false, until);
    if (done.next || done.counted_waits) {
        waiting_.after_release(db, std::string{granted.name}, done, until);
    }
    asked.answer = done;
}

}  // namespace rowlock::detail
