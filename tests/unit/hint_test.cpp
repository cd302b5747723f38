#include "lock/wakeup/hint.hpp"

#include "base/identity.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

using namespace rowlock;
using wakeup::announced_grant;
using wakeup::decode_look;
using wakeup::decode_wakeup;
using wakeup::encode_look;
using wakeup::encode_wakeup;
using wakeup::is_proved;

namespace {

const std::string secret = "00112233445566778899aabbccddeeff";

}  // namespace

TEST_CASE("a wake-up about a grant is decoded, and proved only by its secret") {
    for (const auto number : {std::int64_t{1}, std::numeric_limits<std::int64_t>::max()}) {
        const announced_grant meant{grant_id{number}, number, number == 1};
        const auto said = encode_wakeup(meant, secret);
        CHECK(said.size() <= 128);
        CHECK(decode_wakeup(said) == meant);
        CHECK(is_proved(said, secret));
        CHECK_FALSE(is_proved(said, "00112233445566778899aabbccddeefe"));
        CHECK_FALSE(is_proved(said, ""));
        CHECK_FALSE(is_proved(encode_wakeup(meant, ""), ""));  // a session without a secret
    }
}

TEST_CASE("the proof is the same half of SHA-256 that PostgreSQL's statements compute") {
    // select left(encode(sha256('00112233445566778899aabbccddeeff7 9 0'), 'hex'), 32)
    CHECK(encode_wakeup({rowlock::grant_id{7}, 9}, secret) ==
          "7 9 0 74aa53f7631dd8a7887317eadcbcf74a");
}

TEST_CASE("a wake-up with any changed character is not proved") {
    const auto said = encode_wakeup({rowlock::grant_id{123}, 456, true}, secret);
    for (std::size_t at = 0; at < said.size(); ++at) {
        for (const char other : {' ', '0', '1', '9', 'f'}) {
            if (said[at] == other) continue;
            std::string changed = said;
            changed[at] = other;
            CAPTURE(changed);
            CHECK_FALSE((decode_wakeup(changed) && is_proved(changed, secret)));
        }
    }
    for (const auto& other : {said + " ", said + "0", " " + said, said.substr(1), std::string{},
                              said.substr(0, said.size() - 1), said.substr(said.size() - 32)}) {
        CAPTURE(other);
        CHECK_FALSE((decode_wakeup(other) && is_proved(other, secret)));
    }
}

TEST_CASE(
    "a wake-up about changed rows is decoded, proved only by its secret, and is not a grant") {
    for (const auto revision : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
        const auto said = encode_look(revision, secret);
        CHECK(said.size() <= 128);
        CHECK(decode_look(said) == revision);
        CHECK_FALSE(decode_wakeup(said));
        CHECK(is_proved(said, secret));
        CHECK_FALSE(is_proved(said, "00112233445566778899aabbccddeefe"));
    }
    CHECK_FALSE(decode_look(encode_wakeup({rowlock::grant_id{7}, 9}, secret)));
    // A proof is not valid for another revision, nor for a grant.
    const auto said = encode_look(7, secret);
    for (const std::string words :
         {"look 8", "look 07", "look  7", "7 9 0", "Look 7", "look 7 7"}) {
        const auto other = words + said.substr(said.size() - 33);
        CAPTURE(other);
        CHECK_FALSE(is_proved(other, secret));
    }
    for (const std::string other : {"", "look", "look ", "look 7", "look 7 ", "look x 7"}) {
        CAPTURE(other);
        CHECK_FALSE(decode_look(other));
    }
}

TEST_CASE("ids do not repeat, and none reveals the next") {
    base::random_ids ids;
    std::set<std::int64_t> drawn;
    std::int64_t before = 0;
    int higher = 0;
    for (int i = 0; i < 1000; ++i) {
        const auto id = ids.next();
        CHECK(id > 0);
        higher += id > before ? 1 : 0;
        before = id;
        drawn.insert(id);
    }
    CHECK(drawn.size() == 1000);
    CHECK(higher > 300);  // a counter goes up each time, or down
    CHECK(higher < 700);
}

TEST_CASE("a forked child draws other ids than its parent, also from those drawn before the fork") {
    base::random_ids ids;
    static_cast<void>(ids.next());
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const auto id = ids.next();
        const auto written = ::write(pipe_ends[1], &id, sizeof id);
        ::_exit(written == sizeof id ? 0 : 1);
    }
    const auto ours = ids.next();
    ::close(pipe_ends[1]);
    std::int64_t theirs = 0;
    CHECK(::read(pipe_ends[0], &theirs, sizeof theirs) == sizeof theirs);
    CHECK(theirs > 0);
    CHECK(theirs != ours);
    ::close(pipe_ends[0]);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a secret has 128 bits, and each session has its own") {
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) {
        const auto made = wakeup::random_wake_address();
        CHECK(made.number > 0);
        CHECK(made.secret.size() == 32);
        CHECK(made.secret.find_first_not_of("0123456789abcdef") == std::string::npos);
        CHECK_FALSE(made.mailbox.has_value());
        seen.insert(made.secret);
    }
    CHECK(seen.size() == 100);
}
