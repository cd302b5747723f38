#include "support/late_server.hpp"

#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <unistd.h>

namespace support {
namespace {

constexpr const char* flag = "held";

// The server itself writes statistics of tables, and locks the table while it waits. With a binary
// log and sync_binlog = 1 MySQL shows a commit only when that log is on the disk, so that there
// would be nothing to hold back. When it is idle, MySQL writes pages that have changed: first the log
// up to the change, for which it waits with the page locked, and with it whoever changes that.
std::vector<std::string> arguments() {
    std::vector<std::string> words{"--innodb-stats-persistent=0"};
    if (mysql_alone()) {
        words.emplace_back("--skip-log-bin");
        words.emplace_back("--innodb-idle-flush-pct=0");
    }
    return words;
}

}  // namespace

late_server::late_server()
    : server_{own_server::start(server::mariadb,
                                {.arguments = arguments(),
                                 .before = {"env", "LD_PRELOAD=" ROWLOCK_LATE_LOG_LIBRARY,
                                            "ROWLOCK_LATE_LOG=" + folder_.path() + "/" + flag}})} {
    if (server_) rowlock::migrate(source());
}

late_server::~late_server() {
    let_log_go();  // otherwise the server would not stop
}

rowlock::sql::connection_source late_server::source() const {
    return rowlock::open(url());
}

std::shared_ptr<void> late_server::hold_log() const {
    folder_.write(flag, "");
    return {nullptr, [this](void*) { let_log_go(); }};
}

void late_server::let_log_go() const {
    unlink((folder_.path() + "/" + flag).c_str());
}

void late_server::crash_and_start() {
    server_->kill();
    let_log_go();
    server_->start_again();
}

}  // namespace support
