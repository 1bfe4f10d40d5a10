TEST_PROGRAMS += $O/tests/oracle/json_echo $O/tests/oracle/render_lines $O/tests/oracle/tokenizer_echo

$O/tests/oracle/%: $O/tests/oracle/%.o $O/libcalla.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(wildcard $O/tests/oracle/*.d)
