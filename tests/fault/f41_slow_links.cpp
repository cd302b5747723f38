// F41: clients far away from their database, whose packets are delayed and sometimes lost.

#include "fault/frame.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <future>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using std::chrono::milliseconds;
using support::soon;
using steady = std::chrono::steady_clock;

constexpr milliseconds round_trip = 300ms;
constexpr milliseconds ttl = 10 * round_trip;

contract::server_address server_of(const support::lock_database& database) {
    return contract::address_of(database.speaks() == rowlock::sql::dialect::postgresql
                                    ? support::server::postgresql
                                    : support::server::mariadb);
}

class far_away {
public:
    far_away(const support::lock_database& database, double loss, unsigned seed)
        : relay_{server_of(database).port}, tables_{database.source().tables()} {
        relay_.become(
            {.round_trip = round_trip, .loss = loss, .resend = round_trip + 200ms, .seed = seed});
        auto address = server_of(database);
        address.host = "127.0.0.1";
        address.port = relay_.port();
        url_ = address.url();
    }
    [[nodiscard]] rowlock::sql::connection_source source() const {
        return rowlock::open(url_).with_tables(tables_);
    }

private:
    support::tcp_relay relay_;
    rowlock::sql::table_names tables_;
    std::string url_;
};

void hold(trial& in, support::lock_database& database, int number, double loss, milliseconds time) {
    const far_away link{database, loss, in.seed() + static_cast<unsigned>(number)};
    rowlock::client locks{link.source(), database.options({.ttl = ttl, .statement_timeout = 20s})};
    const auto lease = locks.acquire("job-" + std::to_string(number));
    std::this_thread::sleep_for(time);
    in.must_alone(lease.held(), "a lease is not held");
    in.must_alone(locks.stats().lost == 0, "a lease was lost");
    in.must_alone(locks.stats().sessions == 1, "a session was lost");
}

/// A client that opens the heartbeat's connection only when it is first needed, with half of the
/// remaining trust window as its limit, then with half of the rest.
void hold_by_halves(trial& in, support::lock_database& database) {
    const far_away link{database, 0, in.seed()};
    const auto source = link.source();
    const auto& protocol = database.protocol();
    const auto db = source.connect(soon());
    protocol.sessions().set_up(*db, 5s, soon());
    const auto until = steady::now() + ttl - ttl / 6;
    (void)protocol.sessions().open(*db,
                                   {.id = rowlock::session_id{1},
                                    .owner = "control",
                                    .host = "",
                                    .program = "",
                                    .pid = 1,
                                    .ttl = ttl},
                                   soon());
    while (steady::now() < until) {
        try {
            const auto half = steady::now() + (until - steady::now()) / 2;
            const auto own = source.connect(half);
            protocol.sessions().set_up(*own, 5s, half);
            if (protocol.sessions().heartbeat(*own, rowlock::session_id{1}, 0, half)) return;
        } catch (const rowlock::error&) {  // the next attempt
        }
    }
    in.unprotected("the trust window passed before a connection was open");
}

/// In each round half of the clients lose packets.
void hold_all(trial& in, support::lock_database& database) {
    const milliseconds time = in.size() == fault::scale::quick ? 8s : 60s;
    hold_by_halves(in, database);
    for (int round = 0; round < in.rounds(); ++round) {
        std::vector<std::future<void>> all;
        for (int i = 0; i < 6; ++i) {
            all.push_back(std::async(std::launch::async, [&, i] {
                hold(in, database, 6 * round + i, i % 2 == 0 ? 0 : 0.05, time);
            }));
        }
        for (auto& each : all) each.get();
        in.made();
    }
}

const fault::on_databases f41{{.id = "F41",
                               .what = "300 ms round trip, with and without 5 % loss",
                               .databases = fault::all_servers,
                               .quick_rounds = 1,
                               .full_rounds = 5,
                               .run = hold_all,
                               .control_inside = true,
                               .neighbours = fault::beside::few}};

}  // namespace
