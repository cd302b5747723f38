#pragma once

#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

/// The common part of the examples: a database with rowlock's tables.
namespace example {

/// The database whose URL is the program's first argument. Without one, a new SQLite file, which
/// the destructor removes.
class database {
public:
    database(int argc, char** argv) : source_{rowlock::open(argc > 1 ? argv[1] : own_file())} {
        rowlock::migrate(source_);
    }
    explicit database(const std::string& url) : source_{rowlock::open(url)} {
        rowlock::migrate(source_);
    }
    database(const database&) = delete;
    database& operator=(const database&) = delete;
    ~database() {
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    }

    [[nodiscard]] const rowlock::sql::connection_source& source() const { return source_; }

private:
    std::string own_file() {
        folder_ = (std::filesystem::temp_directory_path() / "rowlock-example-XXXXXX").string();
        if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error{"no temporary folder"};
        return "sqlite:" + folder_ + "/locks.db";
    }

    std::string folder_;
    rowlock::sql::connection_source source_;
};

/// The program's first argument, or, for tests, the environment variable. Without either the
/// program ends with status 77, a skip.
inline std::string server_url(int argc, char** argv, const char* variable) {
    const char* const url = argc > 1 ? argv[1] : std::getenv(variable);
    if (url != nullptr) return url;
    std::fprintf(stderr, "give the URL of a server\n");
    std::exit(77);
}

/// The parts of `scheme://user:password@host:port/database`, for libraries without URLs.
struct server_parts {
    std::string user, password, host_and_port, database;
};
inline server_parts parts_of(const std::string& url) {
    const auto user = url.find("://") + 3;
    const auto host = url.rfind('@') + 1;
    const auto colon = std::min(url.find(':', user), host - 1);
    const auto slash = url.find('/', host);
    const auto password = std::min(colon + 1, host - 1);
    return {url.substr(user, colon - user), url.substr(password, host - 1 - password),
            url.substr(host, slash - host), url.substr(slash + 1)};
}

/// Runs `body` and reports its errors. Returns main()'s exit status.
template <typename Body>
int report(Body body) {
    try {
        body();
        return EXIT_SUCCESS;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return EXIT_FAILURE;
    }
}

template <typename Body>
int run(int argc, char** argv, Body body) {
    return report([&] {
        const database shared{argc, argv};
        body(shared.source());
    });
}

template <typename Body>
int run(const std::string& url, Body body) {
    return report([&] {
        const database shared{url};
        body(shared.source());
    });
}

}  // namespace example
