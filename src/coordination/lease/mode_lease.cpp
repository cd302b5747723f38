#include "base/require.hpp"
#include "coordination/lease/engine.hpp"
#include "coordination/lease/mode_grants.hpp"
#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include <rowlock/error.hpp>
#include <rowlock/shared_mutex.hpp>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace rowlock {

using namespace std::chrono_literals;
using detail::mode_grants;
using protocol::permits_for;
using steady = std::chrono::steady_clock;

namespace detail {
namespace {

/// The shortest time for which it makes sense to ask (acquire_options::max_duration).
constexpr auto least_duration = 10ms;

/// What is left of the grant's own deadline: a second grant has no more from its own grant on.
std::optional<std::chrono::milliseconds> duration_left(const grant& first) {
    const auto deadline = first.deadline.load();
    if (deadline == base::alarm::never) return std::nullopt;
    const auto left = deadline + first.deadline_margin.load() - first.clock.now();
    return std::chrono::floor<std::chrono::milliseconds>(left);
}

}  // namespace

mode_grants::mode_grants(lease hold, lock_mode mode) : mode_{mode} {
    parts_.push_back({std::move(hold), permits_for(mode), false, nullptr});
}

mode_grants::mode_grants(std::vector<std::pair<lease, std::int64_t>> holds, lock_mode mode)
    : mode_{mode} {
    for (auto& each : holds) {
        part made{std::move(each.first), each.second, false, nullptr};
        if (holds.size() > 1) made.watch = watch(made.hold);
        parts_.push_back(std::move(made));
    }
}

lock_mode mode_grants::mode() const noexcept {
    const std::lock_guard lock{guard_};
    return mode_;
}

fencing_token mode_grants::token() const noexcept {
    const std::lock_guard lock{guard_};
    return parts_.back().hold.token();
}

bool mode_grants::held() const noexcept {
    const std::lock_guard lock{guard_};
    return std::ranges::all_of(parts_, [](const part& each) { return each.hold.held(); });
}

std::chrono::milliseconds mode_grants::remaining() const noexcept {
    const std::lock_guard lock{guard_};
    const auto left = [](const part& each) { return each.hold.remaining(); };
    return left(*std::ranges::min_element(parts_, {}, left));
}

std::stop_token mode_grants::lost() const {
    const std::lock_guard lock{guard_};
    return parts_.front().watch ? lost_.get_token() : parts_.front().hold.lost();
}

/// The database ends all parts of a hold together.
std::stop_token mode_grants::release_requested() const {
    const std::lock_guard lock{guard_};
    return parts_.front().hold.release_requested();
}

std::optional<release_request> mode_grants::request() const {
    const std::lock_guard lock{guard_};
    return parts_.front().hold.release_request();
}

std::pair<session_id, grant_id> mode_grants::latest() const noexcept {
    const std::lock_guard lock{guard_};
    const auto& last = parts_.back().hold;
    return {last.session_id(), last.grant_id()};
}

/// Of the first grant: it stays where it is when an upgrade moves the parts.
const std::string& mode_grants::name() const noexcept {
    const std::lock_guard lock{guard_};
    return parts_.front().hold.name();
}

void mode_grants::require_held() const {
    const std::lock_guard lock{guard_};
    require_all_held();
}

/// A loss of one grant is a loss of the whole, for ever.
void mode_grants::require_all_held() const {
    for (const auto& each : parts_) {
        if (each.hold.held()) continue;
        const auto now = each.hold.grant_->now.load();
        if (now == grant::state::released || now == grant::state::releasing) throw not_held();
        throw error{errc::lock_lost,
                    "the shared_mutex was lost: stop, release it, and start over with a new hold"};
    }
}

error mode_grants::not_held() {
    return {errc::not_owner, "this holds nothing: acquire a shared_mutex first"};
}

/// All are released, whatever becomes of one; the first failure is reported. They stay: a second
/// release has nothing to do.
void mode_grants::release() {
    std::exception_ptr failed;
    std::for_each(parts_.rbegin(), parts_.rend(), [&](part& each) {
        try {
            each.hold.release();
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    });
    if (failed) std::rethrow_exception(failed);
}

/// From the oldest on: what an upgrade brought ends no later than its hold.
void mode_grants::extend(std::chrono::milliseconds duration) {
    require_held();
    const auto engine = parts_.front().hold.grant_->owner.lock();
    if (!engine) throw client_destroyed();
    finish_shrinking(*engine);
    for (auto& each : parts_) each.hold.extend(duration);
}

/// Acquires the permits that the hold lacks, as a second grant. The hold keeps its own permits, so
/// no other client is exclusive or upgradeable meanwhile; and new readers wait behind the entry of
/// the upgrade, which is the first of the queue.
bool mode_grants::upgrade(steady::time_point until, const std::stop_token& stop) {
    require_held();
    if (mode_ == lock_mode::exclusive) return true;
    if (mode_ == lock_mode::shared && until > steady::now()) {
        throw error{errc::would_deadlock,
                    "two shared holders that upgrade would wait for each other: hold it "
                    "upgradeable, or use try_upgrade()"};
    }
    const auto& first = *parts_.front().hold.grant_;
    const auto engine = first.owner.lock();
    if (!engine) throw client_destroyed();
    finish_shrinking(*engine);

    const acquire_options how{.max_duration = duration_left(first)};
    if (how.max_duration && *how.max_duration < least_duration) {
        throw error{errc::lock_lost, "the hold ends now, by its max_duration"};
    }
    std::stop_source over;
    const on_stop stopped{stop, stop_it{over}};
    const on_stop lost_meanwhile{lost(), stop_it{over}};
    const auto lacking = permits_for(lock_mode::exclusive) - permits();
    lease rest{engine->acquires().acquire(lock_name{parts_.front().hold.name()}, until,
                                          over.get_token(), how,
                                          {.count = lacking,
                                           .of = protocol::counter_kind::shared_mutex,
                                           .upgrades = first.grant_id})};
    require_held();  // or the rest is released again
    if (!rest.grant_) {
        if (stop.stop_requested() || until <= steady::now()) return false;
        throw error{errc::lock_lost, "the shared_mutex was lost while it was upgraded"};
    }
    // An operator may have ended the hold, or asked for it, before the rest was granted.
    engine->releases().confirm(*parts_.front().hold.grant_);
    // A part that is lost by now stops `lost_` here: not with the guard held, since a callback
    // runs.
    std::unique_ptr<on_stop> watch_first;
    if (!parts_.front().watch) watch_first = watch(parts_.front().hold);
    auto watch_rest = watch(rest);
    const std::lock_guard lock{guard_};
    parts_.push_back({std::move(rest), lacking, false, std::move(watch_rest)});
    if (watch_first) parts_.front().watch = std::move(watch_first);
    mode_ = lock_mode::exclusive;
    return true;
}

/// From the latest grant on: one that is not needed is released, one that is needed in part
/// shrinks. What remains is held without a break.
void mode_grants::downgrade(lock_mode to) {
    require(to <= mode_, "downgrade() goes to a weaker mode; for a stronger one use upgrade()");
    require_held();
    const auto engine = parts_.front().hold.grant_->owner.lock();
    if (!engine) throw client_destroyed();
    finish_shrinking(*engine);
    if (to == mode_) return;
    const auto wanted = permits_for(to);
    const auto from = mode_;
    while (permits() - parts_.back().permits >= wanted) give_up_last(from, to);
    {
        const std::lock_guard lock{guard_};
        mode_ = to;
        const auto spare = permits() - wanted;
        parts_.back().permits -= spare;
        parts_.back().shrinking = spare > 0;
    }
    finish_shrinking(*engine);
}

/// Releases the latest grant. If it was lost, so is the whole: it is put back, and never held
/// again.
void mode_grants::give_up_last(lock_mode from, lock_mode to) {
    std::optional<part> last;
    {
        const std::lock_guard lock{guard_};
        require_all_held();  // else the rest might be held again without this one
        last = std::move(parts_.back());
        parts_.pop_back();
        mode_ = to;
    }
    try {
        last->hold.release();
    } catch (const error& failure) {
        if (failure.kind() == errc::lock_lost) {
            const std::lock_guard lock{guard_};
            parts_.push_back(*std::move(last));  // there is room for it
            mode_ = from;
        }
        throw;
    }
}

/// If it fails the table has one of the two numbers, and the next change begins with it again.
void mode_grants::finish_shrinking(engine& by) {
    for (auto& each : parts_) {
        if (!each.shrinking) continue;
        by.releases().shrink(*each.hold.grant_, each.permits);
        each.shrinking = false;
    }
}

std::vector<std::shared_ptr<grant>> mode_grants::all() const {
    std::vector<std::shared_ptr<grant>> found;
    const std::lock_guard lock{guard_};
    for (const auto& each : parts_) found.push_back(each.hold.grant_);
    return found;
}

std::int64_t mode_grants::permits() const noexcept {
    std::int64_t sum = 0;
    for (const auto& each : parts_) sum += each.permits;
    return sum;
}

std::unique_ptr<mode_grants::on_stop> mode_grants::watch(const lease& one) {
    return std::make_unique<on_stop>(one.lost(), stop_it{lost_});
}

}  // namespace detail

const char* to_string(lock_mode mode) noexcept {
    switch (mode) {
        case lock_mode::shared:
            return "shared";
        case lock_mode::upgradeable:
            return "upgradeable";
        case lock_mode::exclusive:
            break;
    }
    return "exclusive";
}

mode_lease::mode_lease() noexcept = default;
mode_lease::mode_lease(mode_lease&& other) noexcept = default;
mode_lease::~mode_lease() = default;

mode_lease& mode_lease::operator=(mode_lease&& other) noexcept {
    // The old hold is released as the temporary goes out of scope.
    mode_lease moved{std::move(other)};
    grants_.swap(moved.grants_);
    return *this;
}

namespace {

lock_mode mode_of(const detail::grant* hold) {
    if (hold == nullptr) throw mode_grants::not_held();
    require(!hold->may_be_kept, "this client may retain the lease: acquire it in a mode instead");
    const std::int64_t permits = hold->permits;
    const auto mode =
        permits == 0 ? std::optional{lock_mode::exclusive} : protocol::mode_for(permits);
    require(mode && (permits == 0 || hold->of_mode), "permits of a semaphore have no mode");
    return *mode;
}

}  // namespace

mode_lease::mode_lease(lease&& hold) {
    const auto mode = mode_of(hold.grant_.get());
    grants_ = std::make_unique<mode_grants>(std::move(hold), mode);
}

mode_lease::mode_lease(lease hold, lock_mode mode)
    : grants_{std::make_unique<mode_grants>(std::move(hold), mode)} {}

mode_lease::mode_lease(std::unique_ptr<detail::mode_grants> grants) noexcept
    : grants_{std::move(grants)} {}

const std::string& mode_lease::name() const noexcept {
    static const lease none;
    return grants_ ? grants_->name() : none.name();
}

lock_mode mode_lease::mode() const noexcept {
    return grants_ ? grants_->mode() : lock_mode::shared;
}

fencing_token mode_lease::token() const noexcept {
    return grants_ ? grants_->token() : fencing_token{};
}

bool mode_lease::held() const noexcept {
    return grants_ && grants_->held();
}

std::chrono::milliseconds mode_lease::remaining() const noexcept {
    return grants_ ? grants_->remaining() : 0ms;
}

std::stop_token mode_lease::lost() const {
    return grants_ ? grants_->lost() : std::stop_token{};
}

std::stop_token mode_lease::release_requested() const {
    return grants_ ? grants_->release_requested() : std::stop_token{};
}

std::optional<release_request> mode_lease::release_request() const {
    return grants_ ? grants_->request() : std::nullopt;
}

session_id mode_lease::session_id() const noexcept {
    return grants_ ? grants_->latest().first : rowlock::session_id{};
}

grant_id mode_lease::grant_id() const noexcept {
    return grants_ ? grants_->latest().second : rowlock::grant_id{};
}

void mode_lease::release() {
    if (grants_) grants_->release();
}

void mode_lease::extend(std::chrono::milliseconds duration) {
    if (!grants_) throw mode_grants::not_held();
    grants_->extend(duration);
}

void mode_lease::upgrade() {
    static_cast<void>(upgrade_until(steady::time_point::max(), {}));
}

bool mode_lease::upgrade(const std::stop_token& stop) {
    return upgrade_until(steady::time_point::max(), stop);
}

bool mode_lease::try_upgrade() {
    return upgrade_until(steady::time_point::min(), {});
}

bool mode_lease::upgrade_until(steady::time_point until, const std::stop_token& stop) {
    if (!grants_) throw mode_grants::not_held();
    return grants_->upgrade(until, stop);
}

void mode_lease::downgrade(lock_mode to) {
    if (!grants_) throw mode_grants::not_held();
    grants_->downgrade(to);
}

}  // namespace rowlock
