#include "base/ablation.hpp"
#include "coordination/lease/acquisition.hpp"
#include "coordination/lease/engine.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <vector>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::fast_path;

/// Longest wait for a shared call to begin; after that a thread makes its own.
constexpr auto patience = 20ms;

}  // namespace

/// Sends the first statement of an acquisition together with those of other threads. Returns
/// nullopt if only an unbatched attempt can tell.
std::optional<strategy::attempt> engine::acquire_together(acquisition& call, sql::deadline until) {
    using outcome = strategy::attempt::outcome;
    if (call.barging()) return std::nullopt;
    auto ours = current();
    if (!ours || !ours->trust()->open(clock_.now())) return std::nullopt;
    if (uses(fast_path::probe_held) && call.until <= steady::now() &&
        names_.was_held(call.name.str())) {
        if (still_held(call.name.str(), until)) return strategy::attempt{outcome::held, 0, {}};
        names_.forget(call.name.str());
    }
    call.use(std::move(ours));
    auto known = names_.take_free(call.name.str());
    if (!uses(fast_path::reacquire)) known.reset();
    const auto answer = call.send_as_new([&] {
        return acquires_.ask({call.request(), known, until}, patience);
    });
    if (answer && answer->seen.holder_expired) return std::nullopt;  // must be ended first
    return answer;
}

void engine::acquire_for(std::span<acquires::item* const> asked) {
    const auto& first = asked.front()->ask;
    const auto db = take_connection(first.until);
    if (asked.size() == 1) {
        if (first.known && batch_.reacquire(*db, first.request, *first.known, first.until)) {
            asked.front()->answer = {strategy::attempt::outcome::granted, *first.known + 1, {}};
        } else {
            asked.front()->answer = protocol_.acquire(*db, first.request, first.until);
        }
        return;
    }
    std::vector<acquires::item*> chosen;
    for (auto* each : asked) {
        // Of two requests for one name the second asks again. So does a request from a session that
        // was opened since.
        const auto& wanted = each->ask.request;
        const bool twice = std::ranges::any_of(
            chosen, [&](const auto* it) { return it->ask.request.name == wanted.name; });
        if (!twice && wanted.session == first.request.session) chosen.push_back(each);
    }
    const auto unknown = std::partition(
        chosen.begin(), chosen.end(), [](const auto* each) { return each->ask.known.has_value(); });
    const auto known = static_cast<std::size_t>(unknown - chosen.begin());
    const std::span<acquires::item* const> all{chosen};
    // Other dialects use one statement for both. One known token alone makes no batch.
    const bool apart = db->speaks() == sql::dialect::postgresql && known > 1;
    const std::size_t retaken = apart ? known : 0;
    grant_all(*db, all.first(retaken), true, first.until);
    grant_all(*db, all.subspan(retaken), false, first.until);
}

void engine::grant_all(sql::connection& db, std::span<acquires::item* const> asked, bool known,
                       sql::deadline until) {
    if (asked.empty()) return;
    std::vector<strategy::grant_request> requests;
    std::vector<std::int64_t> freed_with;
    for (const auto* each : asked) {
        requests.push_back(each->ask.request);
        if (known) freed_with.push_back(*each->ask.known);
    }
    const auto tokens = known ? batch_.reacquire_all(db, requests, freed_with, until)
                              : batch_.acquire_all(db, requests, until);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        if (!tokens[i]) continue;
        asked[i]->answer = {strategy::attempt::outcome::granted, *tokens[i], {}};
    }
}

/// Whether a try_acquire would certainly fail.
bool engine::still_held(const std::string& name, sql::deadline until) {
    return looks_.ask({name, until}, patience).value_or(false);
}

void engine::look_for(std::span<looks::item* const> asked) {
    const auto until = asked.front()->ask.until;
    std::vector<std::string_view> names;
    for (const auto* each : asked) names.push_back(each->ask.name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    const auto db = take_connection(until);
    const auto held = batch_.held(*db, names, until);
    for (auto* each : asked) {
        const auto at = std::ranges::lower_bound(names, each->ask.name) - names.begin();
        each->answer = held[static_cast<std::size_t>(at)];
    }
}

/// Sends a release without a known waiter together with those of other threads. Returns nullopt if
/// only an unbatched release can tell, without a pause: the failure may be that of another release.
std::optional<strategy::release_outcome> engine::release_together(const grant& held,
                                                                  sql::deadline until,
                                                                  bool& unknown) {
    try {
        return releases_.ask({held.session_id, {held.name, held.grant_id}, until}, patience);
    } catch (const error& failure) {
        if (failure.kind() == errc::outcome_unknown) {
            unknown = true;
            count(counter::unknown_outcomes);
        } else if (!failure.retryable()) {
            throw;
        }
        return std::nullopt;
    }
}

void engine::release_for(std::span<releases::item* const> asked) {
    const auto& first = asked.front()->ask;
    const auto db = take_connection(first.until);
    if (asked.size() == 1) {
        auto done = queue_.release(*db, first.granted.name, first.session, first.granted.grant_id,
                                   false, first.until);
        if (done.next) after_release(*db, std::string{first.granted.name}, done, first.until);
        asked.front()->answer = done;
        return;
    }
    std::vector<releases::item*> chosen;
    std::vector<strategy::granted_name> grants;
    for (auto* each : asked) {
        if (each->ask.session != first.session) continue;
        chosen.push_back(each);
        grants.push_back(each->ask.granted);
    }
    const auto freed = batch_.release_all(*db, first.session, grants, first.until);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (!freed[i]) continue;
        chosen[i]->answer = strategy::release_outcome{
            .freed = true, .next = {}, .unwaited = db->speaks() == sql::dialect::sqlite};
    }
}

}  // namespace rowlock::detail
