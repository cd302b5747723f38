#pragma once

#include "quorum/quorum_protocol.hpp"
#include "support/interception.hpp"
#include "support/lock_database.hpp"
#include "support/servers.hpp"
#include <rowlock/quorum.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// Members of a quorum on the test servers. Several share one server there, which found_quorum()
/// refuses; so their rows are written by hand. Each member's statements can be intercepted.
class test_quorum {
public:
    explicit test_quorum(const std::vector<backend>& members) {
        for (const auto each : members) {
            databases_.push_back(std::make_unique<lock_database>(each));
            if (!there()) return;
            interceptions_.push_back(std::make_unique<interception>());
        }
        for (const auto& each : databases_) {
            const auto db = each->connect();
            servers_.push_back(each->protocol().sessions().server_of(*db, soon()).value_or(""));
        }
        for (std::size_t i = 0; i < size(); ++i) join(i, 1);
    }

    [[nodiscard]] static std::vector<backend> members() {
        using enum backend;
        if (simulation != nullptr) return {simulated_server, simulated_server, simulated_server};
        if (mysql_alone()) return {mariadb, mariadb, mariadb};
        return {postgresql, mariadb, postgresql};
    }

    [[nodiscard]] bool there() const { return databases_.back()->there(); }
    [[nodiscard]] std::size_t size() const { return databases_.size(); }
    [[nodiscard]] lock_database& member(std::size_t i) { return *databases_.at(i); }
    [[nodiscard]] interception& calls(std::size_t i) { return *interceptions_.at(i); }
    [[nodiscard]] const std::vector<std::string>& servers() const { return servers_; }

    [[nodiscard]] std::vector<rowlock::sql::connection_source> sources() {
        std::vector<rowlock::sql::connection_source> all;
        for (std::size_t i = 0; i < size(); ++i) {
            all.push_back(interceptions_[i]->wrap(databases_[i]->source()));
        }
        return all;
    }
    [[nodiscard]] rowlock::quorum_options options(rowlock::client_options of = {}) const {
        return {.member = databases_.front()->options(std::move(of))};
    }

    [[nodiscard]] rowlock::protocol::quorum_membership membership(std::int64_t epoch) const {
        return {.quorum = "test",
                .epoch = epoch,
                .members = servers_,
                .ready_for = {},
                .floor = 0,
                .longest_ttl = std::chrono::seconds{30}};
    }
    [[nodiscard]] rowlock::protocol::quorum_protocol protocol(std::size_t i) const {
        return rowlock::protocol::quorum_protocol{databases_.at(i)->statements()};
    }
    /// No member allows a longer ttl than that.
    void shorten(std::chrono::milliseconds longest_ttl) {
        const auto time = std::to_string(std::chrono::microseconds{longest_ttl}.count());
        for (const auto& each : databases_) {
            each->run("update rowlock_member set max_ttl_us = " + time);
        }
    }
    /// Writes the member's row.
    void join(std::size_t i, std::int64_t epoch,
              std::chrono::milliseconds longest_ttl = std::chrono::seconds{30}) {
        auto row = membership(epoch);
        row.ready_for = servers_.at(i);
        row.longest_ttl = longest_ttl;
        const auto db = databases_.at(i)->connect();
        protocol(i).found(*db, row, soon());
    }

private:
    std::vector<std::unique_ptr<lock_database>> databases_;
    std::vector<std::unique_ptr<interception>> interceptions_;
    std::vector<std::string> servers_;
};

}  // namespace support

/// As ROWLOCK_SIMULATED_CASE: a case about what the client of a quorum decides, or about its times.
#define ROWLOCK_SIMULATED_QUORUM_CASE(sentence, quorum) \
    ROWLOCK_SIMULATED_QUORUM_CASE_(DOCTEST_ANONYMOUS(simulated_case_), sentence, quorum)
#define ROWLOCK_SIMULATED_QUORUM_CASE_(body, sentence, quorum)                   \
    static void body(support::test_quorum& quorum);                              \
    DOCTEST_TEST_CASE(sentence* doctest::test_suite(support::simulated_cases)) { \
        if (support::for_simulation().empty()) return;                           \
        support::test_quorum quorum{support::test_quorum::members()};            \
        if (quorum.there()) body(quorum);                                        \
    }                                                                            \
    static void body(support::test_quorum& quorum)

/// Three members on PostgreSQL and MariaDB, or on MySQL.
#define ROWLOCK_FOR_A_QUORUM(quorum) \
    if (support::test_quorum quorum{support::test_quorum::members()}; (quorum).there())
