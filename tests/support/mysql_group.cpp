#include "support/mysql_group.hpp"

#include "support/waits.hpp"
#include <rowlock/open.hpp>

#include <signal.h>

#include <chrono>
#include <fstream>
#include <stdexcept>

namespace support {

using namespace std::chrono_literals;

namespace {

std::string fresh_uuid() {
    std::ifstream in{"/proc/sys/kernel/random/uuid"};
    std::string made;
    in >> made;
    return made;
}

}  // namespace

std::unique_ptr<mysql_group> mysql_group::start(primaries which) {
    std::unique_ptr<mysql_group> made{new mysql_group};
    made->primaries_ = which;
    made->name_ = fresh_uuid();
    for (int i = 0; i < size; ++i) {
        node each{.home = mariadb_home::install(),
                  .process = nullptr,
                  .port = free_port(),
                  .group_port = free_port()};
        if (!each.home) return nullptr;
        // Not written to the binary log: each member makes its users itself.
        each.home->folder().write(
            "init.sql",
            "set sql_log_bin = 0;\nalter user root@localhost identified by '" + made->password_ +
                "';\ncreate user if not exists rowlock@'%' identified by '" + made->password_ +
                "';\ngrant all on *.* to rowlock@'%' with grant option;\n");
        made->nodes_.push_back(std::move(each));
    }
    for (int i = 0; i < size; ++i) {
        if (!made->launch(i)) throw std::runtime_error{made->failure()};
        made->run(i, "change replication source to source_user = 'rowlock', source_password = '" +
                         made->password_ + "' for channel 'group_replication_recovery'");
        made->run(i, "reset binary logs and gtids");
        if (i == 0) {
            made->found(i);
        } else {
            made->join(i);
        }
    }
    made->run(0, "create database rowlock character set utf8mb4");
    made->level(0);
    return made;
}

std::string mysql_group::url(int member) const {
    return url(member, "rowlock");
}

std::string mysql_group::url_from(int member) const {
    auto all = url(member);
    for (int other = 0; other < size; ++other) {
        if (other == member) continue;
        const auto port = nodes_.at(static_cast<std::size_t>(other)).port;
        all.insert(all.rfind('/'), ",127.0.0.1:" + std::to_string(port));
    }
    return all;
}

std::unique_ptr<rowlock::sql::connection> mysql_group::admin(int member) const {
    return rowlock::open(url(member, "mysql")).connect(soon());
}

rowlock::sql::result mysql_group::run(int member, const std::string& statement) const {
    return admin(member)->query(statement, std::chrono::steady_clock::now() + 90s);
}

void mysql_group::level(int from) const {
    const auto known = run(from, "select @@global.gtid_executed");
    for (int i = 0; i < size; ++i) {
        const auto waited = run(
            i, "select wait_for_executed_gtid_set('" + std::string{known.text(0, 0)} + "', 60)");
        if (waited.integer(0, 0) != 0) throw std::runtime_error{"a member does not catch up"};
    }
}

void mysql_group::kill(int member) {
    auto& each = nodes_.at(static_cast<std::size_t>(member));
    each.process->stop(SIGKILL);
    each.process.reset();
}

void mysql_group::freeze(int member) const {
    nodes_.at(static_cast<std::size_t>(member)).process->freeze();
}

void mysql_group::thaw(int member) const {
    nodes_.at(static_cast<std::size_t>(member)).process->thaw();
}

void mysql_group::start_alone(int member) {
    if (!eventually([&] { return launch(member); }, 60s)) throw std::runtime_error{failure()};
}

void mysql_group::start_without_plugin(int member) {
    if (!eventually([&] { return launch(member, false); }, 60s)) {
        throw std::runtime_error{failure()};
    }
}

void mysql_group::found(int member) {
    run(member, "set global group_replication_bootstrap_group = on");
    join(member);
    run(member, "set global group_replication_bootstrap_group = off");
}

void mysql_group::join(int member) {
    run(member, "start group_replication");
    const bool online = eventually(
        [&] {
            return run(member,
                       "select 1 from performance_schema.replication_group_members where "
                       "member_id = @@server_uuid and member_state = 'ONLINE'")
                       .rows() == 1;
        },
        90s);
    if (!online) throw std::runtime_error{failure()};
}

void mysql_group::force(int member) const {
    const auto port = nodes_.at(static_cast<std::size_t>(member)).group_port;
    run(member,
        "set global group_replication_force_members = '127.0.0.1:" + std::to_string(port) + "'");
    run(member, "set global group_replication_force_members = ''");
}

int mysql_group::primary() const {
    for (int i = 0; i < size; ++i) {
        if (!nodes_[static_cast<std::size_t>(i)].process) continue;
        const auto row = run(i,
                             "select 1 from performance_schema.replication_group_members where "
                             "member_id = @@server_uuid and member_state = 'ONLINE' and "
                             "member_role = 'PRIMARY'");
        if (!row.empty()) return i;
    }
    return -1;
}

void mysql_group::make_primary(int member) const {
    const auto uuid = run(member, "select @@server_uuid");
    run(member, "select group_replication_set_as_primary('" + std::string{uuid.text(0, 0)} + "')");
}

bool mysql_group::launch(int member, bool with_plugin) {
    auto& each = nodes_.at(static_cast<std::size_t>(member));
    std::string seeds;
    for (const auto& other : nodes_) {
        seeds += (seeds.empty() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(other.group_port);
    }
    const bool several = primaries_ == primaries::all;
    auto words = each.home->command(each.port);
    const std::vector<std::string> group{
        "--server-id=" + std::to_string(member + 1),
        "--report-host=127.0.0.1",
        "--report-port=" + std::to_string(each.port),
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--replica-parallel-workers=1",
        "--plugin-load-add=group_replication.so",
        "--loose-group_replication_group_name=" + name_,
        "--loose-group_replication_start_on_boot=OFF",
        "--loose-group_replication_local_address=127.0.0.1:" + std::to_string(each.group_port),
        "--loose-group_replication_group_seeds=" + seeds,
        "--loose-group_replication_recovery_get_public_key=ON",
        "--loose-group_replication_member_expel_timeout=0",
        "--loose-group_replication_autorejoin_tries=0",
        "--loose-group_replication_single_primary_mode=" + std::string{several ? "OFF" : "ON"},
        "--loose-group_replication_enforce_update_everywhere_checks=" +
            std::string{several ? "ON" : "OFF"}};
    if (with_plugin) words.insert(words.end(), group.begin(), group.end());
    each.process =
        std::make_unique<server_process>(words, each.home->folder(), "server.log", SIGTERM);
    if (comes_up(*each.process, url(member, "mysql"), {}, 60s)) return true;
    each.process.reset();
    return false;
}

std::string mysql_group::url(int member, const std::string& database) const {
    return "mysql://rowlock:" + password_ +
           "@127.0.0.1:" + std::to_string(nodes_.at(static_cast<std::size_t>(member)).port) + "/" +
           database;
}

std::string mysql_group::failure() const {
    std::string logs = "a MySQL group did not start: ";
    for (const auto& each : nodes_) logs += each.home->folder().read("server.log");
    return logs;
}

}  // namespace support
