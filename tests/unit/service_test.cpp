#include "base/event_queue.hpp"
#include "base/loss_notifier.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using rowlock::event;
using rowlock::event_kind;
using rowlock::base::event_queue;
using rowlock::base::loss_notifier;

TEST_CASE("events arrive in order, also after a callback that threw") {
    std::vector<rowlock::session_id> sessions;
    {
        event_queue queue{[&](const event& what) {
            sessions.push_back(what.session);
            if (what.session == rowlock::session_id{2}) throw std::runtime_error{"the user's"};
        }};
        for (int i = 1; i <= 5; ++i) {
            queue.post({.kind = event_kind::reconnected, .session = rowlock::session_id{i}});
        }
    }  // the destructor delivers the queued events
    using rowlock::session_id;
    CHECK(sessions ==
          std::vector{session_id{1}, session_id{2}, session_id{3}, session_id{4}, session_id{5}});
}

TEST_CASE("an event for whose text there is no memory is dropped, and later ones arrive") {
    std::vector<std::string> messages;
    {
        event_queue queue{[&](const event& what) { messages.push_back(what.message); }};
        queue.post([]() -> event { throw std::bad_alloc{}; });
        queue.post([] { return event{.message = "later"}; });
    }  // delivers what is queued
    CHECK(messages == std::vector<std::string>{"later"});

    bool asked = false;
    event_queue without_callback{rowlock::event_callback{}};
    without_callback.post([&] {
        asked = true;
        return event{};
    });
    CHECK_FALSE(asked);
}

TEST_CASE("a full queue drops the oldest events and counts them") {
    std::promise<void> go;
    auto may_go = go.get_future().share();
    std::atomic<bool> busy{false};
    std::vector<event> seen;
    {
        event_queue queue{[&](const event& what) {
            busy = true;
            may_go.wait();
            seen.push_back(what);
        }};
        const int posted = static_cast<int>(event_queue::capacity) * 2;
        queue.post({.session = rowlock::session_id{0}});
        // If events were dropped before the thread runs, it would be busy with the notice of them,
        // and events dropped meanwhile would need another.
        while (!busy) std::this_thread::yield();  // ctest's time limit ends a failure
        for (int i = 1; i < posted; ++i) queue.post({.session = rowlock::session_id{i}});
        go.set_value();
    }
    CHECK(seen.back().session ==
          rowlock::session_id{static_cast<std::int64_t>(event_queue::capacity) * 2 - 1});
    int notices = 0;
    for (const auto& what : seen) notices += what.kind == event_kind::events_dropped ? 1 : 0;
    CHECK(notices == 1);
    CHECK(seen.size() <= event_queue::capacity + 2);
}

TEST_CASE("signals are delivered although all earlier callbacks block") {
    constexpr int signals = 50;
    std::promise<void> let_go;
    auto blocked = let_go.get_future().share();
    std::atomic<int> entered{0};
    std::atomic<int> left{0};
    std::vector<std::stop_source> sources(signals);
    std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> callbacks;
    for (auto& source : sources) {
        callbacks.push_back(
            std::make_unique<std::stop_callback<std::function<void()>>>(source.get_token(), [&] {
                ++entered;
                blocked.wait();
                ++left;
            }));
    }
    {
        loss_notifier delivery;
        for (const auto& source : sources) delivery.deliver(source);
        while (entered < signals) std::this_thread::yield();  // ctest's time limit ends a failure
    }
    CHECK(left == 0);
    let_go.set_value();
    callbacks.clear();  // waits for running callbacks
    CHECK(left == signals);
}
