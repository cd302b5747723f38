#include "support/mariadb_home.hpp"

#include "support/servers.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

namespace support {
namespace {

std::string find_program(std::string_view name) {
    std::string places = "/usr/sbin:/usr/libexec:/usr/bin:/usr/local/sbin:";
    if (const char* path = getenv("PATH")) places = std::string{path} + ":" + places;
    if (const char* folder = getenv("ROWLOCK_MARIADB_BIN"))
        places = std::string{folder} + ":" + places;
    for (std::size_t at = 0; at < places.size();) {
        const auto end = std::min(places.find(':', at), places.size());
        auto file = places.substr(at, end - at).append("/").append(name);
        if (access(file.c_str(), X_OK) == 0) return file;
        at = end + 1;
    }
    return {};
}

/// SQL that makes the test's user. On a standby the primary's user later replaces it.
std::string users(const std::string& password) {
    const bool mysql = mysql_alone();
    return (mysql ? "alter user root@localhost identified by '" + password + "';\n"
                  : "set password for root@localhost = password('" + password + "');\n") +
           (mysql ? "create user if not exists" : "create or replace user") +
           " rowlock@'%' identified by '" + password +
           "';\ngrant all on *.* to rowlock@'%' with grant option;\n"
           "create database if not exists rowlock character set utf8mb4;\n";
}

void run(const std::vector<std::string>& command, const server_folder& folder) {
    if (run_as_server(command, folder, "install.log") == 0) return;
    throw std::runtime_error{"no data folder for MariaDB or MySQL: " + folder.read("install.log")};
}

/// Makes the data folder: a copy of the new one that scripts/with-servers made, or, without that,
/// by the installer.
void make_data(const std::vector<std::string>& installer, const server_folder& folder) {
    const char* const made =
        getenv(mysql_alone() ? "ROWLOCK_TEST_MYSQL_NEW_DATA" : "ROWLOCK_TEST_MARIADB_NEW_DATA");
    if (made == nullptr) return run(installer, folder);
    run({"/bin/cp", "-r", "--sparse=always", made, folder.path() + "/data"}, folder);
}

}  // namespace

std::unique_ptr<mariadb_home> mariadb_home::install() {
    if (mysql_alone()) return install_mysql();
    const auto program = find_program("mariadbd");
    const auto installer = find_program("mariadb-install-db");
    if (program.empty() || installer.empty()) {
        miss_program("a MariaDB server", "mariadb-server-core mariadb-client-core");
        return nullptr;
    }
    std::unique_ptr<mariadb_home> made{new mariadb_home};
    made->program_ = {program, "--no-defaults", "--innodb-log-file-size=16M"};
    const server_folder& folder = made->folder_;
    // A separate tmpdir: a server that starts removes files of others in a shared one.
    make_data({installer, "--no-defaults", "--datadir=" + folder.path() + "/data",
               "--tmpdir=" + folder.path(), "--auth-root-authentication-method=normal",
               "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M"},
              folder);
    folder.write("init.sql", users(made->password_));
    return made;
}

std::unique_ptr<mariadb_home> mariadb_home::install_mysql() {
    const char* const program = getenv("ROWLOCK_TEST_MYSQLD");
    if (program == nullptr) {
        miss_program("a MySQL server of the tests'", "none: scripts/with-servers --with mysql");
        return nullptr;
    }
    std::unique_ptr<mariadb_home> made{new mariadb_home};
    made->program_ = {program, "--no-defaults", "--innodb-redo-log-capacity=32M"};
    const server_folder& folder = made->folder_;
    auto installer = made->program_;
    installer.insert(installer.end(), {"--datadir=" + folder.path() + "/data",
                                       "--tmpdir=" + folder.path(), "--initialize-insecure"});
    make_data(installer, folder);
    folder.write("init.sql", users(made->password_));
    return made;
}

std::vector<std::string> mariadb_home::command(std::uint16_t port) const {
    const std::string& home = folder_.path();
    auto words = program_;
    words.insert(words.end(), {"--datadir=" + home + "/data", "--port=" + std::to_string(port),
                               "--bind-address=127.0.0.1", "--socket=" + home + "/socket",
                               "--pid-file=" + home + "/pid", "--init-file=" + home + "/init.sql",
                               "--tmpdir=" + home, "--skip-name-resolve",
                               "--character-set-server=utf8mb4", "--innodb-buffer-pool-size=32M"});
    return words;
}

std::string mariadb_home::url(std::uint16_t port) const {
    return "mysql://rowlock:" + password_ + "@127.0.0.1:" + std::to_string(port) + "/rowlock";
}

}  // namespace support
