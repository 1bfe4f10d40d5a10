TEST_PROGRAMS += $O/tests/weights/meaning

$O/tests/weights/%: $O/tests/weights/%.o $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(wildcard $O/tests/weights/*.d)
