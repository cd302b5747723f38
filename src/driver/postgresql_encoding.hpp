#pragma once

#include <rowlock/error.hpp>

#include <libpq-fe.h>

#include <string>
#include <string_view>

/// For the drivers that hold a handle of libpq's. The server reports both settings with the login
/// and with each change, so nothing is sent.
namespace rowlock::postgresql {

/// Elsewhere two names may become one, or none.
/// @throws error errc::unsupported
inline void require_utf8_database(const PGconn* handle) {
    const char* const encoding = PQparameterStatus(handle, "server_encoding");
    if (encoding == nullptr || std::string_view{encoding} == "UTF8") return;
    throw error{errc::unsupported,
                "the encoding of this database (server_encoding) is " + std::string{encoding} +
                    ", and rowlock needs UTF8: use a database that was made with CREATE DATABASE … "
                    "ENCODING 'UTF8' TEMPLATE template0"};
}

/// SQL_ASCII converts nothing.
/// @throws error errc::invalid_options
inline void require_utf8_client(const PGconn* handle) {
    static const int utf8 = pg_char_to_encoding("UTF8");
    static const int unconverted = pg_char_to_encoding("SQL_ASCII");
    const int encoding = PQclientEncoding(handle);
    if (encoding == utf8 || encoding == unconverted) return;
    throw error{errc::invalid_options,
                "the connection's client_encoding must be UTF8, or names would differ from "
                "those of other clients"};
}

}  // namespace rowlock::postgresql
