#include "lock/client/permit_batches.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <vector>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// As lease_batches.
constexpr auto longest_gathering = 20ms;
constexpr std::size_t calls_in_lane = 1;
/// Names that share one by chance are not sent together.
constexpr std::size_t lanes = 16;

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

permit_batches::lane::lane(permit_batches& of)
    : taking{calls_in_lane, protocol::semaphore_protocol::most_together,
             [&of](auto asked) { of.send_acquires(asked); }},
      giving{calls_in_lane, protocol::semaphore_protocol::most_together,
             [&of](auto asked) { of.send_releases(asked); }} {}

permit_batches::permit_batches(client_context& context, client_connections& connections,
                               waiters& waiting)
    : context_{context}, connections_{connections}, waiting_{waiting} {
    for (std::size_t i = 0; i < lanes; ++i) lanes_.emplace_back(*this);
}

permit_batches::lane& permit_batches::lane_of(std::string_view name) {
    return lanes_[std::hash<std::string_view>{}(name) % lanes];
}

/// A request for more than any semaphore has is a mistake, as one for none, and its sum with others
/// might overflow.
std::optional<protocol::attempt> permit_batches::acquire(const protocol::grant_request& request,
                                                         sql::deadline until) {
    const auto count = request.permits.count;
    if (count < 1 || count > protocol::largest_capacity) return std::nullopt;
    return lane_of(request.name).taking.submit({request, until}, longest_gathering);
}

std::optional<protocol::release_outcome> permit_batches::release(const std::string& name,
                                                                 session_id session,
                                                                 const protocol::own_hold& hold,
                                                                 sql::deadline until) {
    return lane_of(name).giving.submit({name, session, hold, until}, longest_gathering);
}

void permit_batches::send_acquires(std::span<acquires::item* const> asked) {
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

void permit_batches::send_releases(std::span<releases::item* const> asked) {
    const auto& [name, session, hold, until] = asked.front()->call;
    const auto alike =
        like_the_first(asked, [](const releases::item& one, const releases::item& other) {
            return one.call.name == other.call.name && one.call.session == other.call.session;
        });
    const auto db = connections_.take(until);
    std::vector<bool> ended;
    if (alike.size() == 1) {
        ended = {
            context_.semaphores.release(*db, name, session, hold.grant_id, hold.permits, until)};
    } else {
        std::vector<protocol::own_hold> holds;
        for (const auto* each : alike) holds.push_back(each->call.hold);
        ended = context_.semaphores.release_together(*db, name, session, holds, until);
    }
    bool any = false;
    for (std::size_t i = 0; i < alike.size(); ++i) {
        if (!ended[i]) continue;
        alike[i]->answer = protocol::release_outcome{.freed = true, .next = {}};
        any = true;
    }
    if (!any) return;
    waiting_.after_release(*db, name, {.freed = true, .next = {}, .part = true}, until);
}

}  // namespace rowlock::detail
