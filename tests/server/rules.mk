# Unit tests of the server link its objects, which are not in the library.
SERVER_UNITS := $O/tests/unit/test_stop $O/tests/unit/test_fields

$(SERVER_UNITS): $O/tests/unit/test_%: $O/tests/unit/test_%.o $O/src/server/%.o $O/libcalla.a
	$(SAY) link $@
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS) $(shell pkg-config --libs cmocka)
