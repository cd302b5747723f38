// Heartbeats that are moved forward because another client has changed a session's rows.

#include "lock/session/change_news.hpp"

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using rowlock::detail::change_news;

namespace {

constexpr auto never = rowlock::base::alarm::never;

}  // namespace

TEST_CASE("without a notification no heartbeat is moved forward") {
    const change_news news;
    CHECK(news.news_at() == never);
    CHECK(news.announced() == 0);
}

TEST_CASE("a later revision is news and makes a heartbeat due at once") {
    change_news news;
    news.revision = 4;
    CHECK(news.is_news(5));
    CHECK(news.tell(5, 10s));
    CHECK(news.news_at() == 10s);
    CHECK(news.announced() == 5);
}

TEST_CASE("the known revision and earlier ones are not news") {
    change_news news;
    news.revision = 4;
    CHECK_FALSE(news.is_news(4));
    CHECK_FALSE(news.is_news(3));
    CHECK_FALSE(news.tell(4, 10s));
    CHECK(news.news_at() == never);
}

TEST_CASE("a replayed notification is not news, before and after its heartbeat") {
    change_news news;
    CHECK(news.tell(1, 10s));
    CHECK_FALSE(news.is_news(1));
    CHECK_FALSE(news.tell(1, 10s));
    news.revision = 1;
    CHECK_FALSE(news.is_news(1));
    CHECK_FALSE(news.tell(1, 20s));
    CHECK(news.news_at() == never);
}

TEST_CASE("a second notification does not move a heartbeat that is due already") {
    change_news news;
    CHECK(news.tell(1, 10s));
    CHECK(news.is_news(2));
    CHECK_FALSE(news.tell(2, 11s));
    CHECK(news.announced() == 2);
    CHECK(news.news_at() == 10s);
}

TEST_CASE("a notification of an earlier revision does not hide the later one") {
    change_news news;
    CHECK(news.tell(3, 10s));
    CHECK_FALSE(news.tell(2, 10s));
    CHECK(news.announced() == 3);
    news.revision = 2;
    CHECK(news.news_at() == 10s);
}

TEST_CASE("reading the notified revision settles the news") {
    change_news news;
    CHECK(news.tell(1, 10s));
    news.revision = 1;
    CHECK(news.news_at() == never);
}

TEST_CASE("news moves a heartbeat forward at most once a second") {
    change_news news;
    CHECK(news.tell(1, 10s));
    news.revision = 1;
    CHECK(news.tell(2, 10s + 1ms));
    CHECK(news.news_at() == 11s);
    news.revision = 2;
    CHECK(news.tell(3, 10s + 2ms));  // counted from the planned heartbeat
    CHECK(news.news_at() == 12s);
    news.revision = 3;
    CHECK(news.tell(4, 13s));
    CHECK(news.news_at() == 13s);
}

TEST_CASE("a false notification is dropped by the heartbeat that does not find it") {
    change_news news;
    CHECK(news.tell(7, 10s));
    news.confirm(news.announced(), 10s);
    CHECK(news.news_at() == never);
    CHECK(news.announced() == 0);
    CHECK(news.is_news(1));  // it does not hide a true one
}

TEST_CASE("after a false notification the next one still waits for its second") {
    change_news news;
    CHECK(news.tell(7, 10s));
    news.confirm(7, 10s);
    CHECK(news.tell(1, 10s + 1ms));
    CHECK(news.news_at() == 11s);
}

TEST_CASE("a notification that arrives during a heartbeat causes another heartbeat") {
    change_news news;
    CHECK(news.tell(4, 30s));
    const auto before = news.announced();
    CHECK_FALSE(news.tell(5, 30s));
    news.confirm(before, 30s);
    CHECK(news.announced() == 5);
    CHECK(news.news_at() == 31s);
}

TEST_CASE("a heartbeat that was sent before a notification does not drop it") {
    change_news news;
    const auto before = news.announced();
    CHECK(news.tell(6, 40s));
    news.confirm(before, 40s);
    CHECK(news.news_at() == 40s);
}
