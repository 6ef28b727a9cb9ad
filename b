--abc
Content-Disposition: form-data; name="file"; filename="x"

bafkqaaa

--abc--
