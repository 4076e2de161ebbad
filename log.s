rc 124
