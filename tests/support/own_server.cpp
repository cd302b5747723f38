#include "support/own_server.hpp"

#include "support/lock_database.hpp"
#include "support/standby.hpp"
#include <rowlock/open.hpp>

#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace support {

using namespace std::chrono_literals;

std::unique_ptr<own_server> own_server::start(server which, own_server_settings how) {
    std::unique_ptr<own_server> made{new own_server};
    made->how_ = std::move(how);
    if (!(which == server::postgresql ? made->prepare_postgresql() : made->prepare_mariadb())) {
        return nullptr;
    }
    for (int attempt = 0; attempt < 5; ++attempt) {
        made->port_ = free_port();
        made->url_ = made->mariadb_ ? made->mariadb_->url(made->port_)
                                    : "postgresql://rowlock:" + made->password_ +
                                          "@127.0.0.1:" + std::to_string(made->port_) + "/postgres";
        if (made->run()) return made;
    }
    throw std::runtime_error{"a server did not start: " + made->folder().read("server.log")};
}

void own_server::stop() {
    end(mariadb_ ? SIGTERM : SIGINT);
}

void own_server::crash() {
    // PostgreSQL's processes share memory, and would survive the postmaster's SIGKILL for a while.
    end(mariadb_ ? SIGKILL : SIGQUIT);
}

void own_server::kill() {
    end(SIGKILL);
}

void own_server::start_again() {
    // PostgreSQL's other processes may take a moment to detect that the first was killed. Until
    // then a new one refuses to start.
    if (!eventually([this] { return run(); }, 60s)) {
        throw std::runtime_error{"a server did not start again: " + folder().read("server.log")};
    }
}

void own_server::back_up() {
    const auto copy = folder_.path() + "/copy";
    if (run_as_server({"rm", "-rf", copy}, folder_, "copy.log") != 0 ||
        run_as_server({"cp", "-a", folder_.path() + "/data", copy}, folder_, "copy.log") != 0) {
        throw std::runtime_error{"no copy was made: " + folder_.read("copy.log")};
    }
}

void own_server::restore() {
    const auto data = folder_.path() + "/data";
    if (run_as_server({"rm", "-rf", data}, folder_, "copy.log") != 0 ||
        run_as_server({"cp", "-a", folder_.path() + "/copy", data}, folder_, "copy.log") != 0 ||
        run_as_server({"touch", data + "/recovery.signal"}, folder_, "copy.log") != 0) {
        throw std::runtime_error{"no copy was put back: " + folder_.read("copy.log")};
    }
    restored_ = true;
}

/// Finds the programs of the test server's version by a query, so that a missing server is
/// detected.
bool own_server::prepare_postgresql() {
    const auto url = url_of(server::postgresql);
    if (!url) return false;
    postgresql_ = programs_of(*rowlock::open(*url).connect(soon()));
    if (access((postgresql_ + "/initdb").c_str(), X_OK) != 0) {
        miss_program("initdb", "postgresql-15");
        return false;
    }
    password_ = random_password();
    folder_.write("password", password_ + "\n");
    if (run_as_server({postgresql_ + "/initdb", "-D", folder_.path() + "/data", "-U", "rowlock",
                       "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256",
                       "--pwfile=" + folder_.path() + "/password"},
                      folder_, "initdb.log") != 0) {
        throw std::runtime_error{"initdb failed: " + folder_.read("initdb.log")};
    }
    return true;
}

bool own_server::prepare_mariadb() {
    if (!url_of(server::mariadb)) return false;
    mariadb_ = mariadb_home::install();
    return mariadb_ != nullptr;
}

std::vector<std::string> own_server::command() const {
    const auto server = mariadb_
                            ? mariadb_->command(port_)
                            : std::vector<std::string>{postgresql_ + "/postgres",
                                                       "-D",
                                                       folder_.path() + "/data",
                                                       "-p",
                                                       std::to_string(port_),
                                                       "-c",
                                                       "listen_addresses=127.0.0.1",
                                                       "-c",
                                                       "unix_socket_directories=" + folder_.path(),
                                                       "-c",
                                                       "shared_buffers=16MB"};
    auto words = how_.before;
    words.insert(words.end(), server.begin(), server.end());
    words.insert(words.end(), how_.arguments.begin(), how_.arguments.end());
    if (restored_) {
        // There is no archive: all of the log is in the copy.
        words.insert(words.end(), {"-c", "restore_command=false"});
    }
    return words;
}

const server_folder& own_server::folder() const {
    return mariadb_ ? mariadb_->folder() : folder_;
}

bool own_server::run() {
    process_ = std::make_unique<server_process>(command(), folder(), "server.log",
                                                mariadb_ ? SIGTERM : SIGINT);
    if (comes_up(*process_, url_, {}, 60s)) return true;
    process_.reset();  // before another process uses its data
    return false;
}

void own_server::end(int signal) {
    process_->stop(signal);
    process_.reset();
}

}  // namespace support
