#include "lock/session/change_listener.hpp"

#include <rowlock/error.hpp>

#include <new>
#include <utility>

namespace rowlock::detail {
namespace {

using base::alarm;
using wakeup::mailbox;

/// Most batches of notifications taken in a row; the rest is taken the next time.
constexpr int most_takes = 16;

}  // namespace

nanoseconds change_listener::open(const session& ours, std::span<pollfd> on) noexcept {
    if (context_.now() < deaf_until_) return deaf_until_;
    if (unheard_.exchange(false)) return context_.now();
    if (waiting_.is_running()) return alarm::never;
    on[0].fd = listening_.descriptor();
    if (const auto* const box = ours.mailbox()) on[1].fd = box->descriptor();
    return alarm::never;
}

bool change_listener::read_wakeups(session& ours) noexcept {
    if (context_.now() < deaf_until_) return false;
    bool news = false;
    try {
        std::vector<std::string> messages;
        const bool listened = listening_.listening_for() != session_id{};
        read_messages(ours, messages);
        const bool closed = listened && listening_.listening_for() == session_id{};
        for (const auto& each : messages) news = accept(ours, each) || news;
        if (!news && !messages.empty()) deaf_until_ = context_.now() + mailbox::rest_from_flood;
        return news || closed;  // to listen again
    } catch (const std::exception&) {
        return news;  // no memory
    }
}

/// Once the waiters' thread runs, it alone reads: no message for a waiter is taken here. Never
/// blocks.
void change_listener::read_messages(const session& ours, std::vector<std::string>& into) {
    waiting_.while_unchanged([&](bool running) {
        if (running) return;
        if (ours.mailbox() != nullptr) into = ours.mailbox()->take();
        for (int some = 0; some < most_takes; ++some) {
            auto received = listening_.take();
            if (received.empty()) return;
            for (auto& each : received) into.push_back(std::move(each.payload));
        }
    });
}

bool change_listener::accept(session& ours, std::string_view message) const {
    const auto revision = wakeup::decode_look(message);
    if (!revision || !ours.news().is_news(*revision)) return false;
    if (!wakeup::is_proved(message, ours.address().secret)) return false;
    return ours.news().tell(*revision, context_.now());
}

void change_listener::listen(const session& ours, sql::connection& db) noexcept {
    if (!context_.traits().notifies) return;
    if (context_.options.wake_ups == wakeup_mode::polling) return;
    try {
        listening_.want(ours.id(), wakeup::notification_channel(ours.address()), db);
    } catch (const std::exception&) {
        // No memory: wanted again with the next heartbeat.
    }
}

}  // namespace rowlock::detail
