#include "support/replicated_pair.hpp"

#include "support/lock_database.hpp"
#include "support/own_server.hpp"
#include "support/server_process.hpp"
#include "support/standby.hpp"
#include <rowlock/error.hpp>
#include <rowlock/open.hpp>

#include <signal.h>

#include <chrono>
#include <regex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace support {
namespace {

using namespace std::chrono_literals;

constexpr auto slowest_step = 60s;

struct address {
    std::string user;
    std::string password;
    std::string port;
};

address address_in(const std::string& url) {
    const std::regex form{R"(\w+://([^:]*):([^@]*)@127\.0\.0\.1:(\d+)/.*)"};
    std::smatch found;
    if (!std::regex_match(url, found, form)) throw std::runtime_error{"another form of URL"};
    return {found[1], found[2], found[3]};
}

std::string with_two_hosts(std::string url, const std::string& other) {
    const auto port = address_in(other).port;
    url.insert(url.rfind('/'), ",127.0.0.1:" + port);
    return url;
}

class postgresql_pair final : public replicated_pair {
public:
    explicit postgresql_pair(std::unique_ptr<own_server> primary) : primary_{std::move(primary)} {}

    [[nodiscard]] const std::string& primary_url() const override { return primary_->url(); }
    [[nodiscard]] const std::string& standby_url() const override { return standby_url_; }
    [[nodiscard]] std::string url() const override {
        return with_two_hosts(primary_url(), standby_url_);
    }

    void follow(commits how) {
        const auto db = rowlock::open(primary_url()).connect(soon());
        const std::string bin = programs_of(*db);
        const auto at = address_in(primary_url());
        const std::string& home = folder_.path();
        const std::string from =
            "host=127.0.0.1 port=" + at.port + " user=" + at.user + " password=" + at.password;
        if (run_as_server({bin + "/pg_basebackup", "-d", from + " application_name=standby", "-D",
                           home + "/data", "-X", "stream", "-R", "--checkpoint=fast", "--no-sync"},
                          folder_, "basebackup.log") != 0) {
            throw std::runtime_error{"pg_basebackup failed: " + folder_.read("basebackup.log")};
        }
        start_standby(bin, at);
        if (how == commits::asynchronous) return;
        db->query("alter system set synchronous_standby_names = 'standby'", soon());
        db->query("alter system set synchronous_commit = 'remote_apply'", soon());
        db->query("select pg_reload_conf()", soon());
        const auto is_synchronous = [&] {
            return db->query("select count(*) from pg_stat_replication where sync_state = 'sync'",
                             soon())
                       .integer(0, 0) == 1;
        };
        const bool synchronous = eventually(is_synchronous, slowest_step);
        if (!synchronous) throw std::runtime_error{"the standby does not become synchronous"};
    }

    void hold_back() override {
        const auto db = rowlock::open(standby_url_).connect(soon());
        db->query("alter system set primary_conninfo = ''", soon());
        db->query("select pg_reload_conf()", soon());
        const auto gone = [&] {
            return db->query("select count(*) from pg_stat_wal_receiver", soon()).integer(0, 0) ==
                   0;
        };
        if (!eventually(gone, slowest_step)) {
            throw std::runtime_error{"the standby goes on receiving"};
        }
    }

    void kill_primary() override { primary_->kill(); }

    void promote() override {
        rowlock::open(standby_url_).connect(soon())->query("select pg_promote(true, 50)", soon());
    }

private:
    void start_standby(const std::string& bin, const address& at) {
        const std::string& home = folder_.path();
        for (int attempt = 0; attempt < 5; ++attempt) {
            const auto port = std::to_string(free_port());
            process_ = std::make_unique<server_process>(
                std::vector<std::string>{bin + "/postgres", "-D", home + "/data", "-p", port, "-c",
                                         "listen_addresses=127.0.0.1", "-c",
                                         "unix_socket_directories=" + home, "-c", "hot_standby=on",
                                         "-c", "shared_buffers=16MB", "-c",
                                         "wal_retrieve_retry_interval=200ms"},
                folder_, "standby.log", SIGINT);
            standby_url_ =
                "postgresql://" + at.user + ":" + at.password + "@127.0.0.1:" + port + "/postgres";
            if (comes_up(*process_, standby_url_, {.query = "select pg_is_in_recovery()::int"},
                         60s)) {
                return;
            }
        }
        throw std::runtime_error{"the standby did not start: " + folder_.read("standby.log")};
    }

    std::unique_ptr<own_server> primary_;
    server_folder folder_;
    std::unique_ptr<server_process> process_;
    std::string standby_url_;
};

/// The statements that differ between MariaDB and MySQL.
struct replication_words {
    std::vector<std::string> arguments;    ///< both servers' arguments
    std::vector<std::string> acknowledge;  ///< run by the standby, before it follows
    std::string change_primary;            ///< contains @port, @user and @password
    std::string start, stop_receiving, stop, forget;
    std::string follows;                        ///< has a row, where a connection does not prove it
    std::string applied;                        ///< 1 if all received changes are applied
    std::vector<std::string> wait_for_standby;  ///< run by the primary
    std::string standbys;  ///< the number that acknowledge, in the second column
};

const replication_words& words() {
    static const replication_words mariadb{
        .arguments = {"--log-bin"},
        .acknowledge = {"set global rpl_semi_sync_slave_enabled = on"},
        .change_primary =
            "change master to master_host = '127.0.0.1', master_port = @port, "
            "master_user = '@user', master_password = '@password', "
            "master_use_gtid = slave_pos, master_connect_retry = 1",
        .start = "start slave",
        .stop_receiving = "stop slave io_thread",
        .stop = "stop slave",
        .forget = "reset slave all",
        .follows = "",
        // The SQL thread reports that it has nothing more to read.
        .applied =
            "select count(*) > 0 from information_schema.processlist where user = "
            "'system user' and state like 'Slave has read all relay log%'",
        .wait_for_standby = {"set global rpl_semi_sync_master_timeout = 3600000",
                             "set global rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
                             "set global rpl_semi_sync_master_enabled = on"},
        .standbys = "show global status where variable_name = 'Rpl_semi_sync_master_clients'"};
    static const replication_words mysql{
        .arguments = {"--log-bin", "--gtid-mode=on", "--enforce-gtid-consistency=on"},
        .acknowledge = {"install plugin rpl_semi_sync_replica soname 'semisync_replica.so'",
                        "set global rpl_semi_sync_replica_enabled = on"},
        .change_primary =
            "change replication source to source_host = '127.0.0.1', source_port = "
            "@port, source_user = '@user', source_password = '@password', "
            "source_auto_position = 1, source_connect_retry = 1, "
            "get_source_public_key = 1",
        .start = "start replica",
        .stop_receiving = "stop replica io_thread",
        .stop = "stop replica",
        .forget = "reset replica all",
        .follows =
            "select 1 from performance_schema.replication_connection_status where "
            "service_state = 'ON'",
        .applied =
            "select gtid_subset(received_transaction_set, @@global.gtid_executed) from "
            "performance_schema.replication_connection_status where channel_name = ''",
        .wait_for_standby = {"install plugin rpl_semi_sync_source soname 'semisync_source.so'",
                             "set global rpl_semi_sync_source_timeout = 3600000",
                             "set global rpl_semi_sync_source_wait_point = 'AFTER_SYNC'",
                             "set global rpl_semi_sync_source_enabled = on"},
        .standbys = "show global status where variable_name = 'Rpl_semi_sync_source_clients'"};
    return mysql_alone() ? mysql : mariadb;
}

void replace(std::string& text, std::string_view what, const std::string& by) {
    text.replace(text.find(what), what.size(), by);
}

class mariadb_pair final : public replicated_pair {
public:
    mariadb_pair(std::unique_ptr<own_server> primary, std::unique_ptr<own_server> standby)
        : primary_{std::move(primary)}, standby_{std::move(standby)} {}

    [[nodiscard]] const std::string& primary_url() const override { return primary_->url(); }
    [[nodiscard]] const std::string& standby_url() const override { return standby_url_; }
    [[nodiscard]] std::string url() const override {
        return with_two_hosts(primary_url(), standby_url_);
    }

    /// Makes the standby, which was installed empty, read all of the primary's log.
    void follow(commits how) {
        const auto at = address_in(primary_url());
        const auto first = rowlock::open(primary_url()).connect(soon());
        auto db = rowlock::open(standby_->url()).connect(soon());
        if (how == commits::synchronous) {
            // The primary first: a MySQL standby queries it when it connects.
            for (const auto& each : words().wait_for_standby) first->query(each, soon());
            for (const auto& each : words().acknowledge) db->query(each, soon());
        }
        auto change_primary = words().change_primary;
        replace(change_primary, "@port", at.port);
        replace(change_primary, "@user", at.user);
        replace(change_primary, "@password", at.password);
        if (mysql_alone()) {
            // Its own password would stay, since users are made only if they are missing. On
            // MariaDB the primary's log replaces the user.
            db->query("set sql_log_bin = 0", soon());
            db->query("alter user " + at.user + "@'%' identified by '" + at.password + "'", soon());
        }
        db->query(change_primary, soon());
        db->query(words().start, soon());
        standby_url_ = std::regex_replace(standby_->url(), std::regex{"rowlock:[^@]*@"},
                                          "rowlock:" + at.password + "@");
        const auto follows = [&] {
            try {
                admin_ = rowlock::open(standby_url_).connect(soon());
                return !mysql_alone() || admin_->query(words().follows, soon()).rows() == 1;
            } catch (const rowlock::error&) {
                return false;
            }
        };
        const bool followed = eventually(follows, slowest_step);
        if (!followed) throw std::runtime_error{"the standby does not follow"};
        if (how == commits::asynchronous) return;
        const bool acknowledges =
            eventually([&] { return first->query(words().standbys, soon()).integer(0, 1) == 1; },
                       slowest_step);
        if (!acknowledges) throw std::runtime_error{"the standby acknowledges nothing"};
    }

    void hold_back() override { admin_->query(words().stop_receiving, soon()); }
    void kill_primary() override { primary_->kill(); }

    /// Promotes the standby as a fail-over tool does: it applies the received changes first.
    void promote() override {
        admin_->query(words().stop_receiving, soon());
        const bool applied =
            eventually([&] { return admin_->query(words().applied, soon()).integer(0, 0) == 1; },
                       slowest_step);
        if (!applied) throw std::runtime_error{"the standby does not apply what it has"};
        // The applier waits for up to a minute for the rest of a transaction that it has received
        // in part (SLAVE_WAIT_GROUP_DONE in the sources of both servers).
        admin_->query(words().stop, std::chrono::steady_clock::now() + std::chrono::minutes{2});
        admin_->query(words().forget, soon());
        admin_->query("set global read_only = 0", soon());
    }

private:
    std::unique_ptr<own_server> primary_;
    std::unique_ptr<own_server> standby_;
    std::string standby_url_;
    std::unique_ptr<rowlock::sql::connection> admin_;
};

}  // namespace

std::unique_ptr<replicated_pair> replicated_pair::start(server which, commits how) {
    if (which == server::postgresql) {
        auto primary = own_server::start(which);
        if (!primary) return nullptr;
        auto made = std::make_unique<postgresql_pair>(std::move(primary));
        made->follow(how);
        return made;
    }
    const auto server = [&](std::initializer_list<std::string> more) {
        auto arguments = words().arguments;
        arguments.insert(arguments.end(), more);
        return own_server::start(which, {.arguments = std::move(arguments)});
    };
    auto primary = server({"--server-id=1"});
    auto standby = server({"--server-id=2", "--read-only=1"});
    if (!primary || !standby) return nullptr;
    auto made = std::make_unique<mariadb_pair>(std::move(primary), std::move(standby));
    made->follow(how);
    return made;
}

void replicated_pair::catch_up() const {
    const auto first = rowlock::open(primary_url()).connect(soon());
    const auto second = rowlock::open(standby_url()).connect(soon());
    const std::string name = "caught_up_" + random_password();
    first->query("create table " + name + " (id integer)", soon());
    const auto has_it = [&] {
        try {
            second->query("select * from " + name, soon());
            return true;
        } catch (const rowlock::error&) {
            return false;
        }
    };
    const bool there = eventually(has_it, slowest_step);
    if (!there) throw std::runtime_error{"the standby does not catch up"};
    first->query("drop table " + name, soon());
}

}  // namespace support
