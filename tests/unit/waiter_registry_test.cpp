// What becomes of a wait: served, failed, given up, left.

#include "lock/queue/waiter_registry.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace rowlock::detail;
using namespace std::chrono_literals;
using state = waiter::state;

namespace {

std::shared_ptr<session> session_of(session_id id) {
    return std::make_shared<session>(id, "", session::endpoint{}, 1h, 0s);
}

struct fixture {
    std::vector<grant_id> given_back{};
    int work = 0;
    std::shared_ptr<session> ours = session_of(session_id{1});
    waiter_registry registry{
        {.make_grant =
             [](const waiter& which, const waiter_registry::served_entry& found) {
                 auto made = std::make_shared<grant>();
                 made->grant_id = which.grant_id;
                 made->token = fencing_token{found.token};
                 return made;
             },
         .give_back = [this](grant& unwanted) { given_back.push_back(unwanted.grant_id); },
         .on_work = [this] { ++work; }}};

    std::shared_ptr<waiter> expect(grant_id grant_id, std::string name = "job",
                                   std::shared_ptr<session> in = nullptr) {
        return registry.expect(std::move(name), grant_id, in ? std::move(in) : ours, "",
                               std::nullopt);
    }
    std::shared_ptr<waiter> queued(grant_id grant_id, std::string name = "job") {
        auto made = expect(grant_id, std::move(name));
        CHECK(registry.enqueued(*made));
        return made;
    }
    bool wait_no_longer(waiter& which) {
        return registry.wait(which, waiter_registry::steady::now(), {});
    }
};

}  // namespace

TEST_CASE("a waiter may be served before its ticket is confirmed, and is served once") {
    fixture at;
    const auto which = at.expect(grant_id{11});
    at.registry.serve(*which, {.token = 5});
    CHECK_FALSE(at.registry.enqueued(*which));
    CHECK(which->now == state::served);
    CHECK(which->granted->token.value() == 5);
    at.registry.serve(*which, {.token = 6});
    CHECK(which->granted->token.value() == 5);
    CHECK(at.wait_no_longer(*which));
    CHECK(at.registry.empty());
    CHECK(at.registry.find(grant_id{11}) == nullptr);
}

TEST_CASE("a ticket that was not sent is withdrawn, unless it was served all the same") {
    fixture at;
    const auto unsent = at.expect(grant_id{11});
    CHECK(at.registry.withdraw(*unsent));
    CHECK(unsent->now == state::cancelled);
    const auto served = at.expect(grant_id{12});
    at.registry.serve(*served, {.token = 5});
    CHECK_FALSE(at.registry.withdraw(*served));
    CHECK(served->now == state::served);
}

TEST_CASE("a waiter that gives up is taken for cancellation once, by one wake-up for all") {
    fixture at;
    const auto first = at.queued(grant_id{11});
    const auto second = at.queued(grant_id{12});
    CHECK_FALSE(at.registry.has_work());
    at.registry.give_up(first);
    at.registry.give_up(second);
    CHECK(at.work == 1);
    CHECK(at.registry.has_work());
    CHECK(at.registry.queued().empty());
    CHECK(at.registry.take_given_up() == std::vector{first, second});
    CHECK_FALSE(at.registry.has_work());
    CHECK(at.registry.take_given_up().empty());
}

TEST_CASE("a waiter that was served while it gave up has its grant, and nothing is cancelled") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    at.registry.serve(*which, {.token = 5});
    at.registry.give_up(which);
    CHECK_FALSE(at.registry.has_work());
    CHECK(at.registry.wait_for_answer(*which, 0s));
    const auto other = at.queued(grant_id{12});
    at.registry.give_up(other);
    at.registry.serve(*other, {.token = 6});
    CHECK(at.registry.wait_for_answer(*other, 0s));
    CHECK(at.registry.take_given_up().empty());
}

TEST_CASE("a grant for a thread that has left is unwanted, and is taken once") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    at.registry.give_up(which);
    CHECK(at.registry.waiting() == 1);
    CHECK_FALSE(at.registry.wait_for_answer(*which, 0s));
    CHECK(at.registry.waiting() == 0);
    CHECK(at.registry.has_left(*which));
    at.registry.serve(*which, {.token = 5});
    CHECK(at.registry.has_work());
    CHECK(at.work == 2);
    const auto unwanted = at.registry.take_unwanted();
    REQUIRE(unwanted.size() == 1);
    CHECK(unwanted[0]->grant_id == grant_id{11});
    CHECK(at.registry.take_unwanted().empty());
    CHECK(at.given_back.empty());
}

TEST_CASE("a thread that leaves gives back the grant that came before") {
    fixture at;
    const auto served = at.queued(grant_id{11});
    at.registry.serve(*served, {.token = 5});
    at.registry.leave(*served);
    CHECK(at.given_back == std::vector<grant_id>{grant_id{11}});
    const auto waiting = at.queued(grant_id{12});
    at.registry.leave(*waiting);
    CHECK(at.given_back.size() == 1);
    CHECK(at.registry.take_given_up() == std::vector{waiting});
}

TEST_CASE("what could not be cancelled is taken again, without those that are over") {
    fixture at;
    const auto first = at.queued(grant_id{11});
    const auto second = at.queued(grant_id{12});
    at.registry.give_up(first);
    at.registry.give_up(second);
    CHECK(at.registry.take_given_up().size() == 2);
    at.registry.end(*first, state::cancelled, [] {});
    at.registry.retry_given_up();
    CHECK(at.registry.has_work());
    CHECK(at.registry.take_given_up() == std::vector{second});
}

TEST_CASE("an entry that is over keeps how it ended") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    at.registry.serve(*which, {.token = 5});
    bool called = false;
    CHECK_FALSE(at.registry.end(*which, state::cancelled, [&] { called = true; }));
    CHECK_FALSE(called);
    at.registry.fail(*which, error{errc::deadlock, "a cycle"});
    CHECK(which->now == state::served);
    CHECK_FALSE(which->failure);
}

TEST_CASE("an unwanted grant that was given back otherwise is not given back again") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    at.registry.give_up(which);
    CHECK_FALSE(at.registry.wait_for_answer(*which, 0s));
    at.registry.serve(*which, {.token = 5});
    CHECK(at.registry.erase_unwanted(*which));
    CHECK_FALSE(at.registry.erase_unwanted(*which));
    CHECK(at.registry.take_unwanted().empty());
}

TEST_CASE("an error fails the waiters of one name, or all") {
    fixture at;
    const auto job = at.queued(grant_id{11});
    const auto other = at.queued(grant_id{12}, "other");
    const error broken{errc::database_error, "no such table"};
    CHECK(at.registry.fail_all(broken, "unknown").empty());
    CHECK(at.registry.fail_all(broken, "job") == std::vector{job});
    CHECK(job->now == state::failed);
    CHECK(job->failure->kind() == errc::database_error);
    CHECK(other->now == state::waiting);
    CHECK(at.registry.fail_all(broken, {}) == std::vector{other});
    CHECK(at.registry.empty());
}

TEST_CASE("the end of a session fails its waiters and no others") {
    fixture at;
    const auto later = session_of(session_id{2});
    const auto lost = at.queued(grant_id{11});
    const auto stays = at.expect(grant_id{12}, "job", later);
    later->grants().expect(grant_id{12});
    at.ours->grants().expect(grant_id{11});
    const error why{errc::lock_lost, "the session ended"};
    at.registry.session_lost(session_id{1}, &why);
    CHECK(lost->now == state::failed);
    CHECK_FALSE(at.ours->grants().knows(grant_id{11}));
    CHECK(stays->now == state::asked);
    CHECK(later->grants().knows(grant_id{12}));
    CHECK(at.registry.waiting_session() == session_id{2});
    CHECK(at.registry.of_session(session_id{1}).empty());
    CHECK(at.registry.of_session(session_id{2}) == std::vector{stays});
}

TEST_CASE(
    "a closed registry fails all waits, also later ones, and returns whether entries may be left") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    CHECK(at.registry.close());
    CHECK(which->now == state::failed);
    CHECK(which->failure->kind() == errc::lock_lost);
    const auto late = at.expect(grant_id{12});
    CHECK(late->now == state::failed);
    CHECK(at.wait_no_longer(*late));
    CHECK_FALSE(at.registry.close());
}

TEST_CASE("a waiting thread is woken by its grant, and a stop request ends its wait") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    std::thread server{[&] { at.registry.serve(*which, {.token = 5}); }};
    CHECK(at.registry.wait(*which, waiter_registry::steady::now() + 1min, {}));
    server.join();
    const auto other = at.queued(grant_id{12});
    std::stop_source stop;
    stop.request_stop();
    CHECK_FALSE(at.registry.wait(*other, waiter_registry::steady::now() + 1min, stop.get_token()));
}

TEST_CASE("a position is news once") {
    fixture at;
    const auto which = at.queued(grant_id{11});
    CHECK(at.registry.moved(*which, 3));
    CHECK_FALSE(at.registry.moved(*which, 3));
    CHECK(at.registry.moved(*which, 2));
    at.registry.serve(*which, {.token = 5});
    CHECK_FALSE(at.registry.moved(*which, 1));
}
