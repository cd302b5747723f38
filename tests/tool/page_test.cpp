// The page of `rowlock serve`, in Chromium.

#include "tool/browser.hpp"
#include "tool/open_transaction.hpp"
#include "tool/serving.hpp"
#include "tool/tool.hpp"
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

std::unique_ptr<client> client_of(const tool::tables& in, const std::string& program = "") {
    client_options options{.deadlock_detection = deadlock_detection::off};
    if (!program.empty()) options.program = program;
    return std::make_unique<client>(rowlock::open(in.url()).with_tables({.prefix = in.prefix()}),
                                    options);
}

std::jthread waiter_of(client& locks, const std::string& name) {
    const auto before = locks.stats().queued;
    std::jthread made{[&locks, name](const std::stop_token& stop) {
        static_cast<void>(locks.acquire(name, stop, {.note = "waits for it"}));
    }};
    REQUIRE(tool::eventually([&] { return locks.stats().queued > before; }));
    return made;
}

/// A thread of each of two clients that has a lock and waits for that of the other.
std::vector<std::jthread> cross(client& one, client& two, const std::string& first,
                                const std::string& second) {
    auto both_held = std::make_shared<std::barrier<>>(2);
    const auto side = [&](client& locks, const std::string& holds, const std::string& wants) {
        return std::jthread{[&locks, both_held, holds, wants](const std::stop_token& stop) {
            const auto held = locks.acquire(holds);
            both_held->arrive_and_wait();
            static_cast<void>(locks.acquire(wants, stop));
        }};
    };
    std::vector<std::jthread> all;
    all.push_back(side(one, first, second));
    all.push_back(side(two, second, first));
    REQUIRE(tool::eventually([&] { return one.stats().waiting > 0 && two.stats().waiting > 0; }));
    return all;
}

std::string url_of(const tool::serving& at, const std::string& where = "") {
    return "http://" + at.address() + "/" + where;
}

/// The numbers above the list, by their titles.
std::string totals(const tool::browser& page) {
    return page
        .run(
            "return [...document.querySelectorAll('.totals li')].map((e) => "
            "e.innerText.replace('\\n', ' ')).join(', ');")
        .get<std::string>();
}

}  // namespace

TEST_CASE("the page shows locks of every kind, and follows them without being loaded again") {
    const auto page = tool::browser::start();
    if (!page) return;
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in, "worker");
        const auto other = client_of(*in, "other");
        const auto nightly = locks->acquire("nightly");
        semaphore limit{*locks, "limit"};
        limit.create(5);
        const auto two = limit.acquire(2);
        const auto reading = shared_mutex{*locks, "page"}.acquire(lock_mode::shared);
        const tool::serving at{*in};
        page->open(url_of(at));
        CHECK(page->shows("worker["));
        CHECK(page->shows("2 of 5 permits, 1 holder"));
        CHECK(page->shows(", shared"));
        CHECK(totals(*page).starts_with("3 held, 0 waiting, none longest wait"));
        page->run("window.stays = true;");
        {
            const auto waits = waiter_of(*other, "nightly");
            const auto late = locks->acquire("late");
            CHECK(page->shows("late"));
            CHECK(page->becomes(
                "document.querySelector('tbody tr').innerText.includes('nightly')"));  // the
                                                                                       // longest
                                                                                       // wait
            CHECK(totals(*page).starts_with("4 held, 1 waiting"));
        }
        CHECK(page->hides("late"));
        CHECK(page->run("return window.stays;") == true);
        CHECK(page->complaints() == json::array());
    }
}

TEST_CASE("a row of the page keeps the focus and a selection while rows above it go") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    auto first = std::make_unique<lease>(locks->acquire("a"));
    const auto second = locks->acquire("b");
    const auto third = locks->acquire("c");
    const tool::serving at{*in};
    page->open(url_of(at));
    CHECK(page->becomes("document.querySelectorAll('tbody tr').length === 3"));
    page->run(
        "document.querySelector('tbody tr:nth-child(2) a').focus();"
        "getSelection().selectAllChildren(document.querySelector('tbody tr:nth-child(3)'));");
    first = nullptr;
    CHECK(page->becomes("document.querySelectorAll('tbody tr').length === 2"));
    CHECK(page->run("return document.activeElement.innerText;") == "b");
    CHECK(page->run("return String(getSelection()).includes('c');") == true);
}

TEST_CASE("the page does not pass for live when its server hangs") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto held = locks->acquire("nightly");
    tool::serving at{*in};
    page->open(url_of(at));
    REQUIRE(page->shows("nightly"));
    at.running().send(SIGSTOP);
    CHECK(page->shows("as of "));
    CHECK(page->shows("The database has not answered for a while"));
    at.running().send(SIGCONT);
    CHECK(page->hides("as of "));
}

TEST_CASE("the page finds among ten thousand locks, and has no more rows than are looked at") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto held = locks->acquire("first");
    tool::add_leases_of_first(*in);
    const tool::serving at{*in};
    page->open(url_of(at));
    CHECK(page->shows("10000\nheld"));
    CHECK(page->run("return document.querySelectorAll('tbody tr').length;") == 100);
    CHECK(page->shows("Show more: 9900 are left"));
    page->type("input[type=search]", "job/777");
    CHECK(page->becomes("document.querySelectorAll('tbody tr').length === 11"));
    page->click("thead th:nth-child(1) button");
    CHECK(page->becomes("document.querySelector('tbody td').innerText === 'job/777'"));
    page->click("thead th:nth-child(1) button");
    CHECK(page->becomes("document.querySelector('tbody td').innerText === 'job/7779'"));
}

TEST_CASE("the page shows who waits for whom, and deadlock cycles") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto one = client_of(*in, "one");
    const auto two = client_of(*in, "two");
    const auto three = client_of(*in, "three");
    const auto cycle = cross(*one, *two, "ledger", "stock");
    const auto waits = waiter_of(*three, "ledger");
    const tool::serving at{*in};
    page->open(url_of(at, "#/waits"));
    CHECK(page->shows("Deadlock cycle: "));
    CHECK(page->becomes("document.querySelectorAll('.edge.cycle').length === 4"));
    CHECK(page->run("return document.querySelectorAll('.edge.waits').length;") == 1);
    CHECK(page->run("return document.querySelectorAll('.node').length;") == 5);
    CHECK(page->complaints() == json::array());
}

TEST_CASE(
    "the page names the transaction that keeps a lock, where it delays nobody without a click") {
    const auto page = tool::browser::start();
    if (!page) return;
    for (const auto& in : tool::all_tables()) {
        CAPTURE(std::string{in->name()});
        const auto locks = client_of(*in, "worker");
        const auto held = locks->acquire("a");
        tool::open_transaction keeps{*in};
        const bool delays = in->url().starts_with("mysql:");
        const tool::serving at{*in};
        page->open(url_of(at, "#/lock/lease/a"));
        CHECK(page->shows("worker["));
        if (delays) {
            REQUIRE(page->shows("Look for transactions that keep it locked"));
            std::this_thread::sleep_for(1'100ms);  // a page that asked would do so within a second
            CHECK(page->text().find("process ") == std::string::npos);
            page->click("main button");
        }
        CHECK(page->shows("Until that ends it can be neither broken nor passed on"));
        CHECK(keeps.is_named_in(page->text()));
        keeps.end();
        const tool::serving another{*in};  // which has not looked yet
        if (delays) {
            page->open(url_of(another, "#/lock/lease/a"));
            REQUIRE(page->shows("Look for transactions that keep it locked"));
            page->click("main button");
            CHECK(page->shows("No transaction kept it locked"));
        }
        CHECK(page->hides("Until that ends"));
    }
}

TEST_CASE("the page shows a hand-over as the end of a hold") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
    const auto first = client_of(*in, "first");
    const auto second = client_of(*in, "second");
    auto held = first->acquire("nightly");
    std::optional<lease> next;
    std::jthread waits{[&] { next = second->acquire("nightly"); }};
    REQUIRE(tool::eventually([&] { return second->stats().queued > 0; }));
    held.release();
    waits.join();
    const tool::serving at{*in};
    page->open(url_of(at, "#/lock/lease/nightly"));
    REQUIRE(page->shows("handed over"));
    CHECK(page->run("return document.querySelectorAll('.bar').length;") == 2);
    CHECK(page->run("return document.querySelectorAll('.bar.open').length;") == 1);
    const auto shown = page->text();
    const auto still = shown.find("\tstill held");
    REQUIRE(still != std::string::npos);
    CHECK(shown.find("\tstill held", still + 1) == std::string::npos);
    // A dead holder is not counted, and does not hold it still.
    tool::execute(*in, "update rowlock_session set expires_at = 1000000");
    page->open(url_of(at));
    CHECK(page->becomes("document.querySelector('.totals')?.innerText.includes('expired')"));
    CHECK(totals(*page).starts_with("0 held, 0 waiting"));
    page->open(url_of(at, "#/lock/lease/nightly"));
    CHECK(page->shows("its session expired"));
    CHECK(page->run("return document.querySelectorAll('.bar.open').length;") == 0);
}

TEST_CASE("names of locks run nothing in the page") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
    const std::vector<std::string> names{"<img src=x onerror=\"document.title='owned'\">",
                                         "</script><script>document.title='owned'</script>",
                                         "\"><svg onload=document.title='owned'>",
                                         "a/b?c#d%25&e",
                                         "%",
                                         "__proto__",
                                         "\xe2\x80\xae"
                                         "evil",
                                         "javascript:document.title='owned'"};
    const auto locks = client_of(*in, names.front());
    const auto other = client_of(*in, names.at(1));
    std::vector<lease> held;
    std::vector<std::jthread> waiting;
    for (const auto& name : names) {
        held.push_back(locks->acquire(name, {.note = names.front()}));
        waiting.push_back(waiter_of(*other, name));
    }
    const tool::serving at{*in};
    const auto is_unharmed = [&] {
        return page->run(
                   "return document.title + document.images.length + "
                   "document.querySelectorAll('script').length;") == "rowlock11";
    };
    page->open(url_of(at));
    CHECK(page->becomes("document.querySelectorAll('tbody tr').length === 8"));
    CHECK(is_unharmed());
    CHECK(page->shows("\\u{202e}evil"));
    for (int i = 1; i <= 8; ++i) {
        page->open(url_of(at));
        const auto row = "tbody tr:nth-child(" + std::to_string(i) + ") a";
        CHECK(page->becomes("document.querySelectorAll('tbody tr').length === 8"));
        const auto name =
            page->run("return document.querySelector('" + row + "').innerText;").get<std::string>();
        CAPTURE(name);
        page->click(row);
        CHECK(page->shows("Queue: 1"));
        CHECK(page->run("return document.querySelector('h1 .name').innerText;") == name);
        CHECK(page->shows("still held"));
        CHECK(is_unharmed());
    }
    for (const std::string where :
         {"#/waits", "#/sessions", "#/lock/lease/%", "#/lock/%3Cimg%3E/%3Cimg%20src=x%3E"}) {
        CAPTURE(where);
        page->open(url_of(at));
        page->open(url_of(at, where));
        CHECK(page->becomes("document.querySelector('main').innerText.length > 20"));
        CHECK(is_unharmed());
    }
    CHECK(page->complaints() == json::array());
    // A control: this finds markup.
    page->run("document.body.insertAdjacentHTML('beforeend', '<img src=x>');");
    CHECK(!is_unharmed());
}

TEST_CASE("the page asks for the token, and breaks a lock with it") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto held = locks->acquire("nightly");
    const tool::token_file secret;
    const tool::serving at{*in, {"--token-file", secret.path(), "--allow-break"}};
    page->open(url_of(at));
    CHECK(page->shows("Paste the token"));
    CHECK(page->text().find("nightly") == std::string::npos);
    page->type("input[type=password]", "not this one");
    page->click("form button");
    CHECK(page->becomes("document.querySelector('input[type=password]')?.value === ''"));
    page->type("input[type=password]", secret.token());
    page->click("form button");
    REQUIRE(page->shows("nightly"));
    CHECK(page->run("return document.cookie + location.href;")
              .get<std::string>()
              .find(secret.token()) == std::string::npos);
    page->click("tbody tr a");
    REQUIRE(page->shows("Break …"));
    page->click("button.bad");
    CHECK(page->becomes("document.querySelector('dialog[open]')"));
    CHECK(held.held());
    page->click("dialog input[value=within]");
    page->type("dialog input[name=reason]", "deploy");
    page->click("dialog button.bad");
    CHECK(page->shows("The holder is asked."));
    CHECK(tool::eventually([&] { return held.release_request().has_value(); }));
    CHECK(held.release_request()->reason == "deploy");
    page->click("dialog button[type=button]");
    CHECK(page->shows("asked to stop"));
    page->click("button.bad");
    page->click("dialog input[value=now]");
    page->click("dialog button.bad");
    CHECK(page->shows("The lock was taken from its holder."));
    CHECK(tool::eventually([&] { return !held.held(); }));
    page->click("dialog button[type=button]");
    CHECK(page->shows("It is free."));
}

TEST_CASE("without --allow-break the page offers no break") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto held = locks->acquire("nightly");
    const tool::serving at{*in};
    page->open(url_of(at, "#/lock/lease/nightly"));
    CHECK(page->becomes("document.querySelectorAll('tbody tr').length > 0"));
    CHECK(page->run("return document.querySelectorAll('button.bad').length;") == 0);
}

TEST_CASE("the page says when the database cannot be read, and when its server has gone") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in);
    const auto held = locks->acquire("nightly");
    {
        const tool::serving at{*in};
        page->open(url_of(at));
        REQUIRE(page->shows("nightly"));
        tool::execute(*in, "alter table rowlock_ticket rename to hidden");
        CHECK(page->shows("The database could not be read"));
        CHECK(page->becomes("document.querySelector('#status').className === 'lost'"));
        const auto status = [&] {
            return page->run("return document.querySelector('#status').innerText;");
        };
        const auto stopped = status();
        CHECK(stopped.get<std::string>().starts_with("as of "));
        std::this_thread::sleep_for(1'100ms);  // a clock that ran would show another second
        CHECK(status() == stopped);
        CHECK(page->text().find("nightly") != std::string::npos);
        tool::execute(*in, "alter table hidden rename to rowlock_ticket");
        CHECK(page->hides("The database could not be read"));
        CHECK(page->becomes("document.querySelector('#status').className === 'live'"));
    }
    CHECK(page->shows("no connection to rowlock serve"));
}

TEST_CASE("the page fits a phone, and the dark") {
    const auto page = tool::browser::start();
    if (!page) return;
    const auto in = tool::sqlite_tables();
    const auto locks = client_of(*in, std::string(60, 'p'));
    const auto other = client_of(*in);
    const auto held = locks->acquire(std::string(255, 'n'), {.note = std::string(300, 'x')});
    const auto waits = waiter_of(*other, std::string(255, 'n'));
    const tool::serving at{*in};
    page->resize(390, 800);
    page->prefer("dark");
    for (const std::string& where : std::vector<std::string>{
             "#/", "#/waits", "#/sessions", "#/lock/lease/" + std::string(255, 'n')}) {
        CAPTURE(where);
        page->open(url_of(at));
        page->open(url_of(at, where));
        CHECK(page->becomes("document.querySelector('tbody tr, .node')"));
        CHECK(page->run("return document.documentElement.scrollWidth;") == 390);
    }
    CHECK(page->run("return getComputedStyle(document.body).backgroundColor;") ==
          "rgb(18, 22, 28)");
    page->prefer("light");
    CHECK(page->run("return getComputedStyle(document.body).backgroundColor;") ==
          "rgb(255, 255, 255)");
}

/// scripts/pictures: what the documents show.
TEST_CASE("pictures" * doctest::skip(std::getenv("ROWLOCK_PICTURES") == nullptr)) {
    const auto page = tool::browser::start();
    REQUIRE(page);
    const auto in = tool::sqlite_tables();
    REQUIRE(in->run({"migrate", "--history", "on"}).code == 0);
    const auto reports = client_of(*in, "reports");
    const auto billing = client_of(*in, "billing");
    const auto shop = client_of(*in, "shop");
    const auto stock = client_of(*in, "stock");
    for (const auto* const each : {&reports, &billing, &shop, &reports, &stock}) {
        auto held = (*each)->acquire("reports/nightly");
        std::this_thread::sleep_for(700ms);
        if (each == &shop) {
            REQUIRE(in->run({"break", "--now", "--yes", "reports/nightly"}).code == 0);
            REQUIRE(tool::eventually([&] { return !held.held(); }));
        }
        if (held.held()) held.release();
        std::this_thread::sleep_for(200ms);
    }
    {
        // Handed over: stock waits, and billing gives it on.
        auto given = billing->acquire("reports/nightly");
        std::optional<lease> next;
        std::jthread waits{[&] { next = stock->acquire("reports/nightly"); }};
        REQUIRE(tool::eventually([&] { return stock->stats().queued > 0; }));
        std::this_thread::sleep_for(600ms);
        given.release();
        waits.join();
        std::this_thread::sleep_for(500ms);
    }
    std::vector<std::jthread> waiting;
    const auto nightly = reports->acquire("reports/nightly", {.note = "sales of yesterday"});
    waiting.push_back(waiter_of(*billing, "reports/nightly"));
    waiting.push_back(waiter_of(*shop, "reports/nightly"));
    waiting.push_back(waiter_of(*stock, "reports/nightly"));
    const auto invoices = billing->acquire("invoices/2026-11", {.note = "run 42"});
    waiting.push_back(waiter_of(*reports, "invoices/2026-11"));
    const auto leader = stock->acquire("scheduler", {.note = "http://stock-2:8080"});
    semaphore gateway{*billing, "payment-gateway"};
    gateway.create(5);
    const auto permits = gateway.acquire(3);
    const auto read = shared_mutex{*shop, "catalogue"}.acquire(lock_mode::shared);
    const auto read_again = shared_mutex{*reports, "catalogue"}.acquire(lock_mode::shared);
    const auto transfer = client_of(*in, "transfer");
    const auto intake = client_of(*in, "intake");
    const auto cycle = cross(*transfer, *intake, "ledger", "warehouse");
    // As if they had run for a while, on machines of their own.
    execute(
        *in,
        "update rowlock_lock set acquired_at = acquired_at - (100 + length(name) * 37) * 1000000");
    tool::execute(*in,
                  "update rowlock_ticket set enqueued_at = enqueued_at - length(name) * 11000000");
    tool::execute(*in,
                  "update rowlock_hold set acquired_at = acquired_at - length(name) * 13000000");
    tool::execute(*in, "update rowlock_session set host = program || '-' || (1 + id % 3)");
    tool::execute(*in, "update rowlock_history set host = program || '-1' where host is not null");
    const tool::serving at{*in};
    const std::string folder = std::getenv("ROWLOCK_PICTURES");
    const auto take = [&](const std::string& name, const std::string& where,
                          const std::string& shows) {
        page->open(url_of(at));
        page->open(url_of(at, where));
        REQUIRE(page->shows(shows));
        page->save_picture(folder + "/" + name + ".png");
    };
    page->resize(1200, 640);
    take("locks", "#/", "payment-gateway");
    take("waits", "#/waits", "Deadlock cycle");
    page->resize(1200, 1000);
    take("lock", "#/lock/lease/reports%2Fnightly", "handed over");
    page->prefer("dark");
    page->resize(390, 720);
    take("phone", "#/", "payment-gateway");
}
